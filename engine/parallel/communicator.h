#pragma once
#include <cstddef>

#include "absl/status/status.h"

namespace baton::engine {

// What one rank of a tensor-parallel group has to do with the others. All ranks make the same
// calls in the same order with the same sizes; whoever comes first waits, up to the deadline that
// the implementation was given. On a GPU pointers are device memory of the rank, and a call is
// queued on the rank's stream and returns at once: results and late failures show when the stream
// is waited for. On the CPU a call returns when its result is there.
//
// One rank's failure is everybody's: after Abort, or when a deadline passes, every waiting and
// every later call of every rank returns the first failure. There is no way back; a new group is
// made.
//
// Collective calls of one rank come from one thread; Abort and status from any.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // receive[i] = the sum over all ranks of send[i], the same bits on every rank. `send` and
  // `receive` may be the same. The order of the sum depends on nothing but count and world_size.
  //   send, receive: [count]
  virtual absl::Status AllReduceSum(const float* send, float* receive, std::size_t count) = 0;

  // receive[r, :] = the `bytes` at rank r's `send`. `send` may be the rank's own place in
  // `receive`.
  //   receive: [world_size, bytes]
  virtual absl::Status AllGather(const void* send, std::size_t bytes, void* receive) = 0;

  // Ends the group: wakes all that wait and fails all that comes, on every rank, with `status`,
  // which is not OK; the first wins. Never blocks for long. Idempotent.
  virtual void Abort(const absl::Status& status) = 0;

  // OK while the group lives, else what ended it.
  virtual absl::Status status() const = 0;
};

}  // namespace baton::engine
