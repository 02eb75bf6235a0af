#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "kvtransfer/grpc_stream.h"
#include "kvtransfer/receive_hub.h"
#include "kvtransfer/receive_link.h"

namespace baton::kvtransfer {
namespace {

class Receiver final : public TransferReceiver {
 public:
  Receiver(const Options& options, Callbacks callbacks, const Clock& clock)
      : link_options_{.worker_id = options.worker_id,
                      .incarnation = options.incarnation,
                      .allow_shared_memory = options.allow_shared_memory},
        fingerprint_(options.fingerprint),
        num_blocks_(options.memory.num_blocks),
        hub_(std::make_shared<ReceiveHub>(
            ReceiveHub::Options{
                .table = {.worker_id = options.worker_id,
                          .incarnation = options.incarnation,
                          .fingerprint = options.fingerprint,
                          .block_bytes = options.memory.block_bytes,
                          .limits = {.lease = options.lease, .max_age = options.max_age}},
                .memory = options.memory,
                .metrics = options.metrics},
            std::move(callbacks), clock)) {}

  // The server goes first: it waits for its links, which use the hub.
  ~Receiver() override { server_.reset(); }

  absl::Status Listen(const Options& options) {
    constexpr std::size_t kFrameBytes = std::size_t{1} << 20;
    constexpr std::size_t kHeadBytes = std::size_t{64} << 10;  // as the sender's
    BATON_ASSIGN_OR_RETURN(
        server_,
        GrpcStreamServer::Start(
            options.listen_address, std::max(kFrameBytes, options.memory.block_bytes) + kHeadBytes,
            [this](std::shared_ptr<ReplyStream> stream) {
              return std::make_unique<ReceiveLink>(link_options_, hub_, std::move(stream));
            }));
    address_ = absl::StrCat(options.advertise_host, ":", server_->port());
    return absl::OkStatus();
  }

  TransferTicket Reserve(std::vector<std::int32_t> blocks, int num_tokens) override {
    const auto first = static_cast<std::size_t>(fingerprint_.FirstVisibleBlock(num_tokens));
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
  const std::shared_ptr<ReceiveHub> hub_;
  std::unique_ptr<GrpcStreamServer> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TransferReceiver>> TransferReceiver::Start(Options options,
                                                                          Callbacks callbacks,
                                                                          const Clock& clock) {
  BATON_CHECK(
      options.memory.block_bytes > 0 &&
          options.memory.layers.size() == static_cast<std::size_t>(options.fingerprint.num_layers),
      "the KV pool does not have the fingerprint's layers");
  auto receiver = std::make_unique<Receiver>(options, std::move(callbacks), clock);
  BATON_RETURN_IF_ERROR(receiver->Listen(options));
  return std::unique_ptr<TransferReceiver>(std::move(receiver));
}

}  // namespace baton::kvtransfer
