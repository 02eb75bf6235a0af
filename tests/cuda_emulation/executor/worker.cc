#include "cuda_emulation/executor/worker.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "cuda_emulation/executor/statistics.h"
#include "cuda_emulation/sanitizers.h"

namespace cuda_emulation {
namespace {

void SetBuiltins(const Thread* thread) {
  current_thread = const_cast<Thread*>(thread);
  threadIdx = thread->index;
  blockIdx = thread->block->index;
}

std::string Describe(const Thread& thread) {
  const dim3& block = thread.block->index;
  return "block(" + std::to_string(block.x) + "," + std::to_string(block.y) + "," +
         std::to_string(block.z) + ") thread " + std::to_string(thread.linear);
}

}  // namespace

std::string Describe(const Site& site) {
  const std::string file = site.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(site.line);
}

// Lends a worker to an OS thread for the thread's life. Streams come and go; their workers stay.
class WorkerLease {
 public:
  WorkerLease() {
    {
      const std::lock_guard lock(Mutex());
      if (!Idle().empty()) {
        worker_ = Idle().back();
        Idle().pop_back();
      }
    }
    if (worker_ == nullptr) worker_ = new Worker;
    worker_->Adopt();
  }
  ~WorkerLease() {
    const std::lock_guard lock(Mutex());
    Idle().push_back(worker_);
  }
  Worker& worker() { return *worker_; }

 private:
  // Never destroyed: threads may end after main does.
  static std::mutex& Mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
  }
  static std::vector<Worker*>& Idle() {
    static auto* idle = new std::vector<Worker*>;
    return *idle;
  }
  Worker* worker_ = nullptr;
};

Worker& Worker::Mine() {
  thread_local WorkerLease lease;
  return lease.worker();
}

// The fibers may hold addresses of another OS thread's variables: they start afresh.
void Worker::Adopt() {
  AdoptThread(self_);
  for (const auto& thread : threads_) ResetFiber(thread->fiber, &Worker::ThreadMain);
}

void Worker::Work(Grid& grid) {
  grid_ = &grid;
  current_worker = this;
  ReleaseUnseen(&grid.start_tag);  // also by helpers, whose variables the fibers use
  random_ = grid.schedule.seed * 0x9E3779B97F4A7C15ull + 1;
  for (;;) {
    const std::uint64_t block = grid.next_block.fetch_add(1);
    if (block >= grid.num_blocks || !RunBlock(block)) break;
  }
  FreeShared();
  if (!failure_.empty()) grid.Fail(failure_);
  failure_.clear();
  AddCounters();
  grid_ = nullptr;
  current_worker = nullptr;
}

void Worker::SetUpBlock(std::uint64_t block) {
  const GridSpec& spec = grid_->spec;
  num_threads_ = spec.block.x * spec.block.y * spec.block.z;
  while (threads_.size() < num_threads_) {
    auto thread = std::make_unique<Thread>();
    {
      SeenLocks seen;  // a fiber comes after its creation
      CreateFiber(thread->fiber);
    }
    ResetFiber(thread->fiber, &Worker::ThreadMain);
    threads_.push_back(std::move(thread));
  }
  if (ring_.size() < num_threads_) ring_.resize(kMaxBlockThreads);
  ring_head_ = ring_count_ = 0;
  blockDim = spec.block;
  gridDim = spec.grid;
  block_.index = dim3(static_cast<unsigned>(block % spec.grid.x),
                      static_cast<unsigned>(block / spec.grid.x % spec.grid.y),
                      static_cast<unsigned>(block / spec.grid.x / spec.grid.y));
  block_.alive = num_threads_;
  block_.static_shared.clear();
  block_.static_bytes = 0;
  block_.dynamic_shared = AllocateShared(spec.dynamic_shared_bytes);
  for (Barrier& barrier : block_.barriers) {
    barrier.arrived = 0;
    barrier.waiting.clear();
  }
  for (unsigned i = 0; i < num_threads_; ++i) {
    Thread* thread = threads_[i].get();
    thread->index =
        uint3{i % spec.block.x, i / spec.block.x % spec.block.y, i / spec.block.x / spec.block.y};
    thread->linear = i;
    thread->block = &block_;
    thread->warp = &block_.warps[i / kWarpThreads];
    thread->exited = false;
    if (i % kWarpThreads == 0) {
      thread->warp->alive = 0;
      thread->warp->rendezvous.clear();
    }
    thread->warp->lanes[i % kWarpThreads] = thread;
    thread->warp->alive |= 1u << (i % kWarpThreads);
    MakeReady(thread);
  }
}

bool Worker::RunBlock(std::uint64_t block) {
  SetUpBlock(block);
  ++blocks_;
  Thread* first = NextReady();
  current_thread = first;
  ++switches_;
  SwitchFiber(self_, first->fiber);
  if (failure_.empty() && block_.alive > 0) DescribeDeadlock();
  if (!failure_.empty()) {
    AbandonBlock();
    return false;
  }
#if !defined(CUDA_EMULATION_TSAN)
  // Under TSan a block that reuses memory of an earlier one would seem to race with it.
  FreeShared();
#endif
  return true;
}

void Worker::DescribeDeadlock() {
  failure_ = "deadlock: " + std::to_string(block_.alive) + " threads wait forever; e.g. ";
  int shown = 0;
  for (unsigned i = 0; i < num_threads_ && shown < 3; ++i) {
    const Thread& thread = *threads_[i];
    if (thread.exited) continue;
    if (shown++ > 0) failure_ += "; ";
    failure_ += Describe(thread) + " at " + Describe(thread.waits_at);
  }
}

void Worker::AbandonBlock() {
  for (unsigned i = 0; i < num_threads_; ++i) {
    Thread& thread = *threads_[i];
    if (!thread.exited) AbandonFiber(thread.fiber);
    ResetFiber(thread.fiber, &Worker::ThreadMain);
    thread.uncommitted.clear();
    thread.groups.clear();
  }
}

// The life of a fiber: one thread of a kernel after another.
void Worker::ThreadMain() {
  EnterFiber(current_thread->fiber);
  for (;;) {
    Thread* self = current_thread;
    Worker& worker = *current_worker;
    SetBuiltins(self);
    Acquire(&worker.grid_->start_tag);
    worker.grid_->spec.body();
    Release(&worker.grid_->end_tag);
    worker.Exit(self);
  }
}

void Worker::Exit(Thread* self) {
  {
    Quiet quiet;
    self->exited = true;
    self->uncommitted.clear();
    self->groups.clear();
    self->warp->alive &= ~(1u << (self->linear % kWarpThreads));
    // __syncthreads counts the threads that have not exited.
    Barrier& barrier = block_.barriers[0];
    if (--block_.alive > 0 && barrier.arrived == block_.alive) {
      barrier.arrived = 0;
      ++barrier.rounds;
      for (Thread* waiting : barrier.waiting) MakeReady(waiting);
      barrier.waiting.clear();
    }
  }
  SwitchAway(self->fiber);
}

void Worker::MakeReady(Thread* thread) {
  ring_[(ring_head_ + ring_count_++) & (ring_.size() - 1)] = thread;
}

Thread* Worker::NextReady() {
  if (ring_count_ == 0) return nullptr;
  const auto at = [this](std::size_t i) -> Thread*& {
    return ring_[(ring_head_ + i) & (ring_.size() - 1)];
  };
  switch (grid_->schedule.order) {
    case Order::kReverse:
      return at(--ring_count_);
    case Order::kRandom:
      std::swap(at(0), at(Random() % ring_count_));
      break;
    case Order::kForward:
      break;
  }
  Thread* next = at(0);
  ++ring_head_;
  --ring_count_;
  return next;
}

// Returns when something switches back to `from`.
void Worker::SwitchAway(Fiber& from) {
  Thread* next = failure_.empty() ? NextReady() : nullptr;
  ++switches_;
  if (next == nullptr) {
    SwitchFiber(from, self_);
    return;
  }
  if (&next->fiber == &from) return;
  current_thread = next;
  SwitchFiber(from, next->fiber);
}

void Worker::Wait(Thread* self, const Site& site) {
  self->waits_at = site;
  SwitchAway(self->fiber);
  SetBuiltins(self);
}

void Worker::Fail(const std::string& what) {
  {
    Quiet quiet;
    failure_ = what + " (" + Describe(*current_thread) + ")";
  }
  SwitchFiber(current_thread->fiber, self_);
  std::abort();  // an abandoned fiber starts afresh
}

std::byte* Worker::AllocateShared(std::size_t bytes) {
  constexpr std::size_t kAlignment = 128;
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, std::max<std::size_t>(bytes, 1)) != 0) {
    throw std::bad_alloc();
  }
  shared_.push_back(memory);
  std::memset(memory, 0xFF, bytes);  // NaN as any float, -1 as int
  return static_cast<std::byte*>(memory);
}

void Worker::FreeShared() {
  for (void* memory : shared_) std::free(memory);
  shared_.clear();
}

std::uint64_t Worker::Random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

bool Worker::NextIsLate() {
  switch (grid_->schedule.copies) {
    case AsyncCopies::kEarly:
      return false;
    case AsyncCopies::kRandom:
      return Random() % 2 == 0;
    case AsyncCopies::kLate:
      return true;
  }
  return true;
}

void Worker::AddCounters() {
  Statistics& statistics = TheStatistics();
  statistics.blocks += blocks_;
  statistics.switches += switches_;
  statistics.collectives += collectives_;
  blocks_ = switches_ = collectives_ = 0;
}

}  // namespace cuda_emulation
