#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kvtransfer/grpc_stream.h"
#include "kvtransfer/host_connector.h"
#include "kvtransfer/send_driver.h"

namespace baton::kvtransfer {

std::unique_ptr<TransferSender> TransferSender::Create(Options options, const Clock& clock) {
  BATON_CHECK(
      options.memory.block_bytes > 0 &&
          options.memory.layers.size() == static_cast<std::size_t>(options.fingerprint.num_layers),
      "the KV pool does not have the fingerprint's layers");
  constexpr std::size_t kFrameBytes = std::size_t{1} << 20;
  constexpr std::size_t kHeadBytes = std::size_t{64} << 10;  // header, checksums, control bodies
  const std::size_t put_bytes = std::max(kFrameBytes, options.memory.block_bytes);
  SendDriver::Options driver{
      .table = {.fingerprint = options.fingerprint,
                .layout = LayoutOf(options.fingerprint, options.memory.block_bytes),
                .num_blocks = options.memory.num_blocks,
                .connect_timeout = options.connect_timeout,
                .ack_timeout = options.ack_timeout,
                .max_frame_bytes = put_bytes,
                .checksum = options.checksum},
      .metrics = options.metrics};
  auto connector = std::make_unique<HostConnector>(
      HostConnector::Options{.worker_id = options.worker_id,
                             .incarnation = options.incarnation,
                             .fingerprint = options.fingerprint,
                             .transport = options.transport,
                             .max_frame_bytes = put_bytes + kHeadBytes},
      [dialer = std::shared_ptr<GrpcDialer>(MakeGrpcDialer())](
          const std::string& address, std::size_t max_frame_bytes, FrameStream::Events events) {
        return dialer->Dial(address, max_frame_bytes, std::move(events));
      });
  const absl::Status registered = connector->RegisterMemory(options.memory);
  BATON_CHECK(registered.ok(), "host memory needs no registration and cannot fail to have it");
  return std::make_unique<SendDriver>(std::move(driver), std::move(connector), clock);
}

}  // namespace baton::kvtransfer
