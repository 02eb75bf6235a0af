#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

// A ring of slots in memory that two processes of one host share: one writes frames, the other
// copies them out. The writer makes the memory (a memfd, which dies with its last user, so nothing
// leaks when a process is killed) and names it by a path that can be opened while it lives. Neither
// side trusts the other: counters and lengths are checked at every use, and the size is sealed so
// that no access can fault.
namespace baton::kvtransfer {

struct RingHeader;

// Where both sides keep the mapping.
class RingMemory {
 public:
  RingMemory(int fd, void* base, std::size_t bytes) : fd_(fd), base_(base), bytes_(bytes) {}
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;
  ~RingMemory();
  RingHeader* header() const { return static_cast<RingHeader*>(base_); }
  std::byte* slot(std::uint32_t index, std::size_t slot_bytes) const;
  int fd() const { return fd_; }

 private:
  const int fd_;
  void* const base_;
  const std::size_t bytes_;
};

// The writing end. Reserve and Publish from one thread at a time; WaitForRoom and Stop from any.
class RingWriter {
 public:
  //   kUnavailable  no shared memory to be had
  static absl::StatusOr<std::unique_ptr<RingWriter>> Create(std::uint32_t num_slots,
                                                            std::size_t slot_bytes);
  // For the reader's Open, in any process of the same pid namespace and user.
  std::string path() const;
  std::uint64_t nonce() const { return nonce_; }
  std::size_t slot_bytes() const { return slot_bytes_; }

  // The next slot to fill, or null when all are full (or the reader's counter makes no sense).
  std::byte* Reserve();
  // Hands `size` bytes of the reserved slot to the reader.
  void Publish(std::size_t size);
  // Waits until there may be room, at most until `timeout` has passed or Stop is called.
  void WaitForRoom(absl::Duration timeout);
  void Stop();

 private:
  RingWriter(std::unique_ptr<RingMemory> memory, std::uint32_t num_slots, std::size_t slot_bytes,
             std::uint64_t nonce);
  std::unique_ptr<RingMemory> memory_;
  const std::uint32_t num_slots_;
  const std::size_t slot_bytes_;
  const std::uint64_t nonce_;
  std::uint32_t head_ = 0;  // frames published
  std::atomic<bool> stopped_{false};
};

// The reading end. Front and Pop from one thread; Stop from any.
class RingReader {
 public:
  //   kUnavailable  the path cannot be opened or is not that ring: use another transport
  static absl::StatusOr<std::unique_ptr<RingReader>> Open(const std::string& path,
                                                          std::uint64_t nonce);
  // The oldest frame, in shared memory that the writer may still scribble on; empty when none came
  // within `timeout` or Stop was called. Spins shortly, then sleeps.
  //   kDataLoss  the writer's counters make no sense
  absl::StatusOr<std::span<const std::byte>> Front(absl::Duration timeout);
  // Gives the slot of the last Front back.
  void Pop();
  void Stop();
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

 private:
  RingReader(std::unique_ptr<RingMemory> memory, std::uint32_t num_slots, std::size_t slot_bytes);
  std::unique_ptr<RingMemory> memory_;
  const std::uint32_t num_slots_;
  const std::size_t slot_bytes_;
  std::uint32_t tail_ = 0;  // frames taken
  std::atomic<bool> stopped_{false};
};

}  // namespace baton::kvtransfer
