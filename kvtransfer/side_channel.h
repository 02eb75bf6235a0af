#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "common/transfer_ticket.h"

// The seam between a link and what moves the blocks of its puts beside the stream, from device to
// device (kvtransfer/cuda). Everything but the blocks' bytes stays on the stream: what is sent is
// announced there, and the receiver posts what matches, in the order of the announcements.
namespace baton::kvtransfer {

// Sender to receiver. Both connect two ranks over the rendezvous that `id` names.
struct OpenPair {
  std::int32_t source_rank = 0;
  std::int32_t destination_rank = 0;
  std::string id;  // opaque, kMaxPairIdBytes at most
};
inline constexpr std::size_t kMaxPairIdBytes = 256;
// Sender to receiver. The link's pairs have nothing under way: both close them.
struct ClosePairs {};
// Sender to receiver. Blocks of one rank and layer are about to come over its pairs.
struct AnnounceBlocks {
  std::int32_t source_rank = 0;
  std::int32_t layer = 0;
  std::int32_t first_block = 0;  // prompt block of the sender's size
  std::int32_t num_blocks = 0;
  bool direct = false;  // slice by slice, not through staging memory
};

// A message of a side channel, about one transfer if it announces blocks (else both 0).
struct SideMessage {
  std::uint64_t transfer_id = 0;
  std::uint64_t incarnation = 0;
  std::variant<OpenPair, ClosePairs, AnnounceBlocks> body;
};

// Blocks of one rank and layer to move.
struct SidePut {
  std::uint64_t put_id = 0;
  std::uint64_t transfer_id = 0;
  std::uint64_t incarnation = 0;
  int source_rank = 0;
  int layer = 0;
  int first_block = 0;               // prompt block
  std::vector<std::int32_t> blocks;  // where consecutive prompt blocks lie in the source pool
};

// The sender's end, made when the link's handshake has chosen it. Thread-safe; no call but Stop
// waits.
class SendSideChannel {
 public:
  // Called on the channel's thread with no lock held.
  struct Events {
    // Writes on the link's stream. False: no room now; OnStreamWritable will be called.
    std::function<bool(const SideMessage& message)> write;
    std::function<void()> on_writable;  // after TryPut returned false
    std::function<void(std::uint64_t put_id)> on_released;
    // The channel is of no more use, and has released or will release every put: abort the link.
    std::function<void(const absl::Status& why)> on_failed;
  };
  virtual ~SendSideChannel() = default;
  // False: no room now, or stopped.
  virtual bool TryPut(SidePut put) = 0;
  // Calls `write` on the channel's thread after everything that was put before has been announced,
  // again and again until it returns true. False: no room now, or stopped.
  virtual bool TryNotify(std::function<bool()> write) = 0;
  virtual void OnStreamWritable() = 0;
  // Gives up what is under way. When it returns the device reads no source block any more, every
  // put was released, and no event is called. Waits for the device, with a deadline.
  virtual void Stop() = 0;
};

// Where a received part of a block goes.
struct Placement {
  int destination_rank = 0;
  std::size_t source_offset = 0;  // in the block as it lies at the sender
  std::byte* to = nullptr;
  std::size_t bytes = 0;
};
struct ClaimedBlock {
  bool granted = false;  // else its bytes are dropped
  std::vector<Placement> placements;
};

// The receiver's end. Thread-safe; no call but Stop waits.
class ReceiveSideChannel {
 public:
  // Called on the channel's thread with no lock held.
  struct Events {
    // Claims the announced blocks for writing, one entry per block.
    std::function<std::vector<ClaimedBlock>(const SideMessage& announcement)> claim;
    // Once per granted block: its bytes are in the pool (OK), or will never be.
    std::function<void(const SideMessage& announcement, int index, const absl::Status& status)>
        landed;
    std::function<void(const absl::Status& why)> on_failed;  // close the link
  };
  virtual ~ReceiveSideChannel() = default;
  // In the order of the stream. Not OK: the link cannot be trusted any more.
  virtual absl::Status OnMessage(const SideMessage& message) = 0;
  // Calls `then` on the channel's thread once everything announced before has landed; not at all
  // when the channel stops before.
  virtual absl::Status AfterLanding(std::function<void()> then) = 0;
  // The peer is gone: gives up what is under way, without waiting.
  virtual void Lose() = 0;
  // When it returns the device writes to no block any more, every granted block was told of, and no
  // event is called. Waits for the device, with a deadline.
  virtual void Stop() = 0;
};

// Makes side channels of one kind over one pool. Thread-safe; must outlive what it makes.
class SideChannels {
 public:
  virtual ~SideChannels() = default;
  virtual std::string name() const = 0;  // at the handshake: "nccl"
  // To a receiver that cuts like `destination`; `peer` is for messages.
  virtual std::unique_ptr<SendSideChannel> NewSender(const KvCut& destination,
                                                     const std::string& peer,
                                                     SendSideChannel::Events events) = 0;
  // Why none can be had from a sender that cuts like `source`; empty: it can.
  virtual std::string WhyNotFrom(const KvCut& source) const = 0;
  virtual std::unique_ptr<ReceiveSideChannel> NewReceiver(const KvCut& source,
                                                          const std::string& peer,
                                                          ReceiveSideChannel::Events events) = 0;
};

}  // namespace baton::kvtransfer
