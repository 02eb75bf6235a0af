#include "engine/threads/thread_pool.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "common/check.h"

namespace baton::engine {
namespace {

constexpr int kIndexBits = 20;
constexpr int kSequenceBits = 24;
constexpr std::uint64_t kIndexMask = (1u << kIndexBits) - 1;
constexpr std::uint32_t kSequenceMask = (1u << kSequenceBits) - 1;

std::uint64_t MakeTicket(std::uint32_t sequence, int count) {
  return (static_cast<std::uint64_t>(sequence & kSequenceMask) << (2 * kIndexBits)) |
         (static_cast<std::uint64_t>(count) << kIndexBits);
}
int TicketIndex(std::uint64_t ticket) { return static_cast<int>(ticket & kIndexMask); }
int TicketCount(std::uint64_t ticket) {
  return static_cast<int>((ticket >> kIndexBits) & kIndexMask);
}

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done()` or `spin_ns` have passed; returns whether it was done. Reads the clock once
// in a while only: it costs as much as several pauses.
template <class Predicate>
bool SpinUntil(std::int64_t spin_ns, Predicate&& done) {
  if (done()) return true;
  if (spin_ns <= 0) return false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(spin_ns);
  do {
    for (int i = 0; i < 16; ++i) {
      Pause();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(const ThreadPoolOptions& options)
    : spin_ns_(absl::ToInt64Nanoseconds(options.spin)) {
  const int num_threads = std::clamp(options.num_threads, 1, kMaxThreads);
  workers_.reserve(num_threads - 1);
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread, options] { WorkerMain(thread, options); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  sequence_.fetch_add(1);
  sequence_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int count, Body body, void* context) {
  BATON_CHECK(count <= kMaxCount, "a parallel loop of more than 2^20 - 1 indices");
  body_ = body;
  context_ = context;
  num_done_.store(0, std::memory_order_relaxed);
  const std::uint32_t sequence = sequence_.load(std::memory_order_relaxed) + 1;
  ticket_.store(MakeTicket(sequence, count), std::memory_order_release);
  // Sequentially consistent with the sleeper's increment and its re-check of `sequence_`: either it
  // sees the new loop, or it is counted here and woken.
  sequence_.store(sequence);
  if (num_sleeping_.load() > 0) sequence_.notify_all();
  Work(0);
  const auto all_done = [&] { return num_done_.load(std::memory_order_acquire) == count; };
  if (SpinUntil(spin_ns_, all_done)) return;
  for (;;) {
    const int done = num_done_.load(std::memory_order_acquire);
    if (done == count) return;
    num_done_.wait(done, std::memory_order_acquire);
  }
}

void ThreadPool::Work(int thread) {
  int finished = 0;
  int count = 0;
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const int index = TicketIndex(ticket);
    count = TicketCount(ticket);
    if (index >= count) break;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    // This index is ours, so the loop stays open (and body_, context_ stay) until we report it.
    body_(context_, index, thread);
    ++finished;
    if (index + 1 == count) break;
    ticket = ticket_.load(std::memory_order_acquire);
  }
  if (finished == 0) return;
  const int done = num_done_.fetch_add(finished, std::memory_order_acq_rel) + finished;
  if (thread != 0 && done == count) num_done_.notify_one();
}

void ThreadPool::WorkerMain(int thread, ThreadPoolOptions options) {
  SetCurrentThreadPriority(options.nice, options.batch);
  std::uint32_t seen = 0;
  for (;;) {
    const auto changed = [&] { return sequence_.load(std::memory_order_acquire) != seen; };
    if (!SpinUntil(spin_ns_, changed)) {
      num_sleeping_.fetch_add(1);
      while (sequence_.load() == seen) sequence_.wait(seen);
      num_sleeping_.fetch_sub(1);
    }
    // In this order: a `seen` that counts the destructor's step has to see `stopping_` as well, or
    // this thread would wait for a step that never comes.
    seen = sequence_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    Work(thread);
  }
}

void SetCurrentThreadPriority(int nice, bool batch) {
  if (batch) {
    sched_param parameters{};
    sched_setscheduler(0, SCHED_BATCH, &parameters);
  }
  if (nice != 0) {
    const auto id = static_cast<id_t>(syscall(SYS_gettid));
    errno = 0;
    const int current = getpriority(PRIO_PROCESS, id);
    if (errno == 0) setpriority(PRIO_PROCESS, id, std::clamp(current + nice, -20, 19));
  }
}

}  // namespace baton::engine
