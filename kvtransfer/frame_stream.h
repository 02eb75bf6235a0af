#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton::kvtransfer {

// A frame to write: owned bytes, then memory of others that is read in place until `on_released`.
struct FrameParts {
  std::string head;
  std::vector<std::span<const std::byte>> pieces;
  std::function<void()> on_released;  // null if and only if there are no pieces
};

// An ordered two-way stream of frames between two processes, as a link's end sees it. Thread-safe;
// no call blocks on the peer.
class FrameStream {
 public:
  // Called on the stream's threads, on_frame one at a time; never with the stream's lock held.
  struct Events {
    // Contiguous; valid during the call only.
    std::function<void(std::span<const std::byte> frame)> on_frame;
    std::function<void()> on_writable;                       // after TryWrite returned false
    std::function<void(const absl::Status& why)> on_closed;  // once, last
  };
  virtual ~FrameStream() = default;
  // Takes the frame and sends it, or returns false with `parts` untouched: there is no room, or the
  // stream is closed. A frame that was taken is released exactly once, possibly after on_closed.
  virtual bool TryWrite(FrameParts&& parts) = 0;
  // Ends the stream; on_closed follows with `why`, unless it ended before.
  virtual void Close(const absl::Status& why) = 0;
};

// Walks once over bytes that lie in several pieces, as a received frame does.
class ByteCursor {
 public:
  explicit ByteCursor(std::vector<std::span<const std::byte>> pieces) : pieces_(std::move(pieces)) {
    for (const auto& piece : pieces_) remaining_ += piece.size();
  }
  std::size_t remaining() const { return remaining_; }
  // Takes `size` bytes, to `to` or away (null). Requires size <= remaining().
  void Take(std::size_t size, std::byte* to);
  // The next `size` bytes if they lie in one piece, else null. Requires size <= remaining().
  const std::byte* Contiguous(std::size_t size) const;

 private:
  std::vector<std::span<const std::byte>> pieces_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
  std::size_t remaining_ = 0;
};

}  // namespace baton::kvtransfer
