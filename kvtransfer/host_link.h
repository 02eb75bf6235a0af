#pragma once
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/frame_stream.h"
#include "kvtransfer/host_connector.h"
#include "kvtransfer/pool_access.h"
#include "kvtransfer/shm_ring.h"
#include "kvtransfer/side_channel.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// The sender's end of one link whose bytes pass through host memory; see HostConnector.
// Thread-safe, but TryPut and TryNotify from one thread at a time. Lives until its stream is
// closed.
class HostLink final : public Transport, public std::enable_shared_from_this<HostLink> {
 public:
  // `options` must outlive the link; `cut` is that of the pool that `reader` reads.
  HostLink(PeerAddress peer, const HostConnector::Options& options, const KvCut& cut,
           std::unique_ptr<PoolReader> reader, TransportEvents events);
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
  // The bytes of a put; errors of PoolReader::Read. After kResourceExhausted on_writable follows.
  absl::StatusOr<HostBlocks> ReadBlocks(const OutgoingPut& put);
  void OnReleased(std::uint64_t put_id);  // after the blocks' hold was let go
  std::byte* ReserveSlot();               // of the ring; null: full, and on_writable follows
  void Publish(std::byte* slot, std::span<const std::byte> head,
               std::span<const std::span<const std::byte>> pieces);
  void WatchRing();
  std::shared_ptr<FrameStream> OpenStream();  // null when not up
  bool UseRing();
  // The side channel, if one was agreed on.
  std::shared_ptr<SendSideChannel> Side();
  std::shared_ptr<SendSideChannel> NewSide(const Welcome& welcome);
  bool OffersSide() const;

  const PeerAddress peer_;
  const HostConnector::Options& options_;
  const KvCut cut_;
  const std::unique_ptr<PoolReader> reader_;
  const TransportEvents events_;
  std::unique_ptr<RingWriter> ring_;  // made before the stream, if any
  std::thread ring_watcher_;          // says when a full ring has room; started at the handshake

  absl::Mutex mutex_;
  std::shared_ptr<FrameStream> stream_ ABSL_GUARDED_BY(mutex_);
  bool up_ ABSL_GUARDED_BY(mutex_) = false;
  bool down_ ABSL_GUARDED_BY(mutex_) = false;
  bool ring_chosen_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<SendSideChannel> side_ ABSL_GUARDED_BY(mutex_);  // until the link is down
  bool awaiting_room_ ABSL_GUARDED_BY(mutex_) = false;
  bool awaiting_staging_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::kvtransfer
