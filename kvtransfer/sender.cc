#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kvtransfer/grpc_stream.h"
#include "kvtransfer/host_connector.h"
#include "kvtransfer/send_driver.h"

namespace baton::kvtransfer {

std::unique_ptr<TransferSender> TransferSender::Create(Options options, const Clock& clock) {
  BATON_CHECK(options.memory.Fits(options.fingerprint),
              "the KV pools do not have the fingerprint's layers and heads");
  constexpr std::size_t kFrameBytes = std::size_t{1} << 20;
  constexpr std::size_t kHeadBytes = std::size_t{64} << 10;  // header, checksums, control bodies
  std::size_t put_bytes = kFrameBytes;
  for (const KvMemory::Rank& rank : options.memory.ranks) {
    put_bytes = std::max(put_bytes, rank.block_bytes);
  }
  SendDriver::Options driver{.table = {.fingerprint = options.fingerprint,
                                       .cut = options.memory.cut(),
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
                             // Checksums are computed where bytes pass through host memory.
                             .side_channels = options.checksum ? nullptr : options.side_channels,
                             .max_frame_bytes = put_bytes + kHeadBytes},
      [dialer = std::shared_ptr<GrpcDialer>(MakeGrpcDialer())](
          const std::string& address, std::size_t max_frame_bytes, FrameStream::Events events) {
        return dialer->Dial(address, max_frame_bytes, std::move(events));
      },
      options.access);
  const absl::Status registered = connector->RegisterMemory(options.memory);
  BATON_CHECK(registered.ok(),
              "registering memory that is reached through host memory cannot fail");
  return std::make_unique<SendDriver>(std::move(driver), std::move(connector), clock);
}

}  // namespace baton::kvtransfer
