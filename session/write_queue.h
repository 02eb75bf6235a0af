#pragma once
#include <cstddef>
#include <deque>
#include <utility>

namespace baton::session {

// The messages a gRPC reactor has to write. The callback API allows one write in flight; this says
// when the next may start, and keeps the message that is being written in place. Not thread-safe:
// the reactor's mutex guards it.
template <class Message>
class WriteQueue {
 public:
  explicit WriteQueue(std::size_t capacity) : capacity_(capacity) {}

  enum class Result {
    kStart,   // the caller starts a write of front() now
    kQueued,  // a write is in flight; Done() will ask for this one
    kFull,    // dropped: `capacity` messages are waiting
  };
  Result Push(Message message) {
    if (messages_.size() >= capacity_ + 1) return Result::kFull;
    messages_.push_back(std::move(message));
    if (in_flight_) return Result::kQueued;
    in_flight_ = true;
    return Result::kStart;
  }
  // The message being written.
  const Message& front() const { return messages_.front(); }
  // The write in flight has ended. True: the caller starts a write of the new front() now.
  bool Done() {
    messages_.pop_front();
    in_flight_ = !messages_.empty();
    return in_flight_;
  }
  // Drops what waits; a message being written stays until Done.
  void DropWaiting() {
    while (messages_.size() > (in_flight_ ? 1u : 0u)) messages_.pop_back();
  }
  bool in_flight() const { return in_flight_; }
  std::size_t size() const { return messages_.size(); }

 private:
  const std::size_t capacity_;
  std::deque<Message> messages_;  // the first is in flight when in_flight_
  bool in_flight_ = false;
};

}  // namespace baton::session
