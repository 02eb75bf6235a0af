#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "kvtransfer/grpc_stream.h"
#include "kvtransfer/plan.h"
#include "kvtransfer/pool_access.h"
#include "kvtransfer/receive_hub.h"
#include "kvtransfer/receive_link.h"

namespace baton::kvtransfer {
namespace {

class Receiver final : public TransferReceiver {
 public:
  Receiver(const Options& options, Callbacks callbacks, const Clock& clock)
      : link_options_{.worker_id = options.worker_id,
                      .incarnation = options.incarnation,
                      .cut = options.memory.cut(),
                      .allow_shared_memory = options.allow_shared_memory,
                      .memory = options.memory,
                      .side_channels = options.side_channels},
        fingerprint_(options.fingerprint),
        num_blocks_(options.memory.num_blocks),
        access_(options.access != nullptr ? options.access : NewHostPoolAccess(options.memory)),
        hub_(std::make_shared<ReceiveHub>(
            ReceiveHub::Options{
                .table = {.worker_id = options.worker_id,
                          .incarnation = options.incarnation,
                          .fingerprint = options.fingerprint,
                          .cut = options.memory.cut(),
                          .limits = {.lease = options.lease, .max_age = options.max_age}},
                .writer = access_->NewWriter(),
                .metrics = options.metrics},
            std::move(callbacks), clock)) {}

  // The server goes first: it waits for its links, which use the hub.
  ~Receiver() override { server_.reset(); }

  absl::Status Listen(const Options& options) {
    constexpr std::size_t kFrameBytes = std::size_t{1} << 20;
    constexpr std::size_t kHeadBytes = std::size_t{64} << 10;  // as the sender's
    // Senders may hold more heads in a rank than we do, and more tokens in a block.
    const std::size_t largest_block =
        BlockBytes(options.fingerprint, {.block_size = kMaxKvBlockSize}, /*rank=*/0);
    BATON_ASSIGN_OR_RETURN(
        server_, GrpcStreamServer::Start(
                     options.listen_address, std::max(kFrameBytes, largest_block) + kHeadBytes,
                     [this](std::shared_ptr<ReplyStream> stream) {
                       return std::make_unique<ReceiveLink>(link_options_, hub_, std::move(stream));
                     }));
    address_ = absl::StrCat(options.advertise_host, ":", server_->port());
    return absl::OkStatus();
  }

  TransferTicket Reserve(std::vector<std::int32_t> blocks, int num_tokens) override {
    const auto first = static_cast<std::size_t>(fingerprint_.FirstVisibleToken(num_tokens) /
                                                link_options_.cut.block_size);
    for (std::size_t i = first; i < blocks.size(); ++i) {
      BATON_CHECK(blocks[i] >= 0 && blocks[i] < num_blocks_,
                  "a block outside the pool was reserved");
    }
    TransferTicket ticket = hub_->Reserve(std::move(blocks), num_tokens);
    ticket.address = address_;
    return ticket;
  }
  void Release(std::uint64_t transfer_id) override { hub_->Release(transfer_id); }
  int port() const override { return server_->port(); }

 private:
  const ReceiveLink::Options link_options_;
  const ModelFingerprint fingerprint_;
  const int num_blocks_;
  const std::shared_ptr<PoolAccess> access_;
  const std::shared_ptr<ReceiveHub> hub_;
  std::unique_ptr<GrpcStreamServer> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TransferReceiver>> TransferReceiver::Start(Options options,
                                                                          Callbacks callbacks,
                                                                          const Clock& clock) {
  BATON_CHECK(options.memory.Fits(options.fingerprint),
              "the KV pools do not have the fingerprint's layers and heads");
  auto receiver = std::make_unique<Receiver>(options, std::move(callbacks), clock);
  BATON_RETURN_IF_ERROR(receiver->Listen(options));
  return std::unique_ptr<TransferReceiver>(std::move(receiver));
}

}  // namespace baton::kvtransfer
