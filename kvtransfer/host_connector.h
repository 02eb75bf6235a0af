#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/transfer_ticket.h"
#include "kvtransfer/frame_stream.h"
#include "kvtransfer/pool_access.h"
#include "kvtransfer/side_channel.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// Links whose bytes pass through host memory. Every link is a frame stream; where both ends are on
// one host and agree at the handshake, the sender's frames go through a shared-memory ring instead,
// and the stream carries the answers and proves that both ends live.
class HostConnector final : public Connector {
 public:
  // How to open a stream: a GrpcDialer's, or a test's.
  using Dial = std::function<std::shared_ptr<FrameStream>(
      const std::string& address, std::size_t max_frame_bytes, FrameStream::Events events)>;
  struct Options {
    std::string worker_id;
    std::uint64_t incarnation = 0;
    ModelFingerprint fingerprint;
    std::string transport = "auto";               // "auto", "nccl", "shm" (fail without), "grpc"
    std::shared_ptr<SideChannels> side_channels;  // offered where set
    std::uint32_t ring_slots = 8;
    std::size_t max_frame_bytes = (1 << 20) + (64 << 10);  // of frames sent, header included
  };
  // `access` is that of the memory to be registered; null: it is host memory.
  HostConnector(Options options, Dial dial, std::shared_ptr<PoolAccess> access = nullptr);

  absl::Status RegisterMemory(const KvMemory& memory) override;
  std::shared_ptr<Transport> Connect(const PeerAddress& peer, TransportEvents events) override;

 private:
  const Options options_;
  const Dial dial_;
  KvCut cut_;
  std::shared_ptr<PoolAccess> access_;
};

}  // namespace baton::kvtransfer
