#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace baton::engine {

struct ThreadPoolOptions {
  int num_threads = 1;  // total, the caller's thread included; at least 1
  // Added to the pool's own threads' niceness (not to the caller's). 0 leaves the process's value.
  int nice = 0;
  // Runs the pool's own threads under SCHED_BATCH: a hint that they compute for long and that a
  // wake-up of another thread may preempt them.
  bool batch = false;
  // How long an idle thread keeps looking for work before it sleeps in the kernel. Zero where more
  // threads than cores run: then every spin takes time from somebody's work.
  absl::Duration spin = absl::Microseconds(50);
};

// A fixed set of threads that run loops together with the caller. One loop at a time; the indices
// of a loop are handed out one by one, so uneven work balances itself. A thread that wakes late
// finds nothing left and delays nobody: the caller waits only for indices that were taken.
// Thread-compatible: one ParallelFor at a time per pool. Indices run on any thread in any order, so
// the result of an index must not depend on who runs it.
class ThreadPool {
 public:
  static constexpr int kMaxThreads = 1024;
  static constexpr int kMaxCount = (1 << 20) - 1;  // of one loop

  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(index, thread) for every index in [0, count), each once, and returns when all are
  // done. `thread` in [0, num_threads()) names the thread's own scratch space. `fn` must not throw
  // and must not call ParallelFor on the same pool. Requires count <= kMaxCount. Costs about a
  // microsecond when the other threads are awake; a loop of one index costs nothing.
  template <class Function>
  void ParallelFor(int count, Function&& fn) {
    if (count <= 1 || workers_.empty()) {
      for (int index = 0; index < count; ++index) fn(index, 0);
      return;
    }
    using Decayed = std::remove_reference_t<Function>;
    Run(
        count,
        [](void* context, int index, int thread) {
          (*static_cast<Decayed*>(context))(index, thread);
        },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Body = void (*)(void* context, int index, int thread);

  void Run(int count, Body body, void* context);
  // Takes indices of the current loop until none is left.
  void Work(int thread);
  void WorkerMain(int thread, ThreadPoolOptions options);

  const std::int64_t spin_ns_;
  Body body_ = nullptr;      // written before a loop opens, read after an index of it was taken
  void* context_ = nullptr;  // likewise
  // The open loop: sequence number (24 bits), count (20) and the next index (20) in one word, so
  // that a thread holding a stale view can never take an index of another loop.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<int> num_done_{0};            // finished indices of the open loop
  alignas(64) std::atomic<std::uint32_t> sequence_{0};  // what sleeping workers wait on
  std::atomic<int> num_sleeping_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

// Lowers the calling thread's priority as ThreadPoolOptions does for the pool's own threads. Best
// effort: a system that refuses leaves it as it is.
void SetCurrentThreadPriority(int nice, bool batch);

}  // namespace baton::engine
