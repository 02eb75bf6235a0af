#pragma once
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/frame_stream.h"
#include "kvtransfer/host_connector.h"
#include "kvtransfer/shm_ring.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// The sender's end of one link between pools in host memory; see HostConnector. Thread-safe, but
// TryPut and TryNotify from one thread at a time. Lives until its stream is closed.
class HostLink final : public Transport, public std::enable_shared_from_this<HostLink> {
 public:
  // `options` and `memory` must outlive the link.
  HostLink(PeerAddress peer, const HostConnector::Options& options, const KvMemory& memory,
           TransportEvents events);
  // Dials and says Hello.
  void Start(const HostConnector::Dial& dial);

  bool TryPut(const OutgoingPut& put) override;
  bool TryNotify(const Message& message) override;
  void Abort(const absl::Status& why) override;

 private:
  void OnFrame(std::span<const std::byte> frame);
  void OnWelcome(const Welcome& welcome);
  void OnClosed(const absl::Status& why);
  Hello MakeHello();
  absl::Status CheckWelcome(const Welcome& welcome) const;
  // Header, then checksums if asked for.
  std::string HeadOf(const OutgoingPut& put) const;
  std::span<const std::byte> BytesOf(const DataHeader& header, const Copy& copy) const;
  bool WriteToRing(std::span<const std::byte> head, std::span<const Copy> copies,
                   const DataHeader& header);
  void WatchRing();
  std::shared_ptr<FrameStream> OpenStream();  // null when not up
  bool UseRing();

  const PeerAddress peer_;
  const HostConnector::Options& options_;
  const KvMemory& memory_;
  const TransportEvents events_;
  std::unique_ptr<RingWriter> ring_;  // made before the stream, if any
  std::thread ring_watcher_;          // says when a full ring has room; started at the handshake

  absl::Mutex mutex_;
  std::shared_ptr<FrameStream> stream_ ABSL_GUARDED_BY(mutex_);
  bool up_ ABSL_GUARDED_BY(mutex_) = false;
  bool down_ ABSL_GUARDED_BY(mutex_) = false;
  bool ring_chosen_ ABSL_GUARDED_BY(mutex_) = false;
  bool awaiting_room_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::kvtransfer
