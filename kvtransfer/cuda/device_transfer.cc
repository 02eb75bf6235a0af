#include "kvtransfer/device_transfer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kvtransfer/cuda/device_pool.h"
#include "kvtransfer/cuda/nccl_channel.h"
#include "kvtransfer/plan.h"

namespace baton::kvtransfer {
namespace {

constexpr std::size_t kPutBytes = std::size_t{1} << 20;  // as in sender.cc

class NcclChannels final : public SideChannels {
 public:
  NcclChannels(const ModelFingerprint& fingerprint, const KvMemory& memory,
               const DeviceTransferOptions& options)
      : fingerprint_(fingerprint),
        cut_(memory.cut()),
        options_(options),
        metrics_(options.metrics == nullptr
                     ? nullptr
                     : std::make_unique<cuda::NcclMetrics>(*options.metrics, options.side)),
        shared_({.timeout = options.abort_timeout, .on_hang = nullptr}, options.max_pairs,
                metrics_.get()) {
    for (const KvMemory::Rank& rank : memory.ranks) {
      ranks_.push_back(
          {.device = rank.device, .layers = rank.layers, .block_bytes = rank.block_bytes});
    }
  }

  std::string name() const override { return "nccl"; }

  std::unique_ptr<SendSideChannel> NewSender(const KvCut& destination, const std::string& peer,
                                             SendSideChannel::Events events) override {
    return cuda::MakeNcclSender(OptionsOf(cut_, destination, peer), shared_, std::move(events));
  }

  std::string WhyNotFrom(const KvCut& source) const override {
    const auto pairs = static_cast<int>(cuda::PairsOf(ShapeOf(source, cut_)).size());
    if (shared_.budget.HasRoom(pairs)) return {};
    return absl::StrFormat("no room for %d NCCL pairs: at most %d may be open", pairs,
                           shared_.budget.max_pairs());
  }

  std::unique_ptr<ReceiveSideChannel> NewReceiver(const KvCut& source, const std::string& peer,
                                                  ReceiveSideChannel::Events events) override {
    return cuda::MakeNcclReceiver(OptionsOf(source, cut_, peer), shared_, std::move(events));
  }

 private:
  cuda::SliceShape ShapeOf(const KvCut& source, const KvCut& destination) const {
    const int heads = KvHeadsOfRank(fingerprint_.num_kv_heads, cut_.tensor_parallel_size, 0).size();
    return {.num_kv_heads = fingerprint_.num_kv_heads,
            .head_bytes = ranks_[0].block_bytes / (2 * heads * cut_.block_size),
            .source_block_size = source.block_size,
            .source_ranks = source.tensor_parallel_size,
            .destination_block_size = destination.block_size,
            .destination_ranks = destination.tensor_parallel_size};
  }

  cuda::NcclChannelOptions OptionsOf(const KvCut& source, const KvCut& destination,
                                     const std::string& peer) const {
    std::size_t message_bytes = kPutBytes;
    for (int rank = 0; rank < source.tensor_parallel_size; ++rank) {
      message_bytes = std::max(message_bytes, BlockBytes(fingerprint_, source, rank));
    }
    return {.peer = peer,
            .shape = ShapeOf(source, destination),
            .ranks = ranks_,
            .pair = {.max_channels = options_.max_channels,
                     .max_message_bytes = message_bytes,
                     .connect_timeout = options_.connect_timeout,
                     .message_timeout = options_.message_timeout},
            .direct_min_bytes = options_.direct_min_bytes,
            .idle_timeout = options_.idle_timeout};
  }

  const ModelFingerprint fingerprint_;
  const KvCut cut_;
  const DeviceTransferOptions options_;
  std::vector<cuda::DeviceRank> ranks_;
  const std::unique_ptr<cuda::NcclMetrics> metrics_;
  cuda::NcclShared shared_;
};

}  // namespace

absl::StatusOr<DeviceTransfer> MakeDeviceTransfer(const ModelFingerprint& fingerprint,
                                                  const KvMemory& memory,
                                                  const DeviceTransferOptions& options) {
  return DeviceTransfer{
      .access = cuda::MakeDevicePool(memory, {.timeout = options.message_timeout}),
      .side_channels = std::make_shared<NcclChannels>(fingerprint, memory, options)};
}

}  // namespace baton::kvtransfer
