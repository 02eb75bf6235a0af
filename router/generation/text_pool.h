#pragma once
#include <cstddef>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "common/bounded_queue.h"

namespace baton::router {

// The threads that parse, render and tokenize requests, so that a long prompt holds up neither the
// doors' threads nor running streams. Thread-safe.
class TextPool {
 public:
  TextPool(int num_threads, std::size_t max_waiting);
  ~TextPool() { Stop(); }

  // False when too many jobs wait or the pool has stopped; then `job` is dropped.
  bool Run(absl::AnyInvocable<void()> job);
  // Finishes what was taken and joins the threads.
  void Stop();

 private:
  BoundedQueue<absl::AnyInvocable<void()>> jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace baton::router
