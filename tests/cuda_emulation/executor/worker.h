#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda_emulation/executor/block.h"
#include "cuda_emulation/executor/grid.h"

namespace cuda_emulation {

// Runs blocks on one OS thread, one at a time. Owns the fibers; kept for reuse when its OS thread
// ends.
class Worker {
 public:
  // The calling OS thread's own.
  static Worker& Mine();

  // Runs blocks of `grid` until none is left.
  void Work(Grid& grid);

  // For threads of the running block. Each thread is ready, running, waiting or exited.
  void MakeReady(Thread* thread);
  // Stops the running thread until MakeReady, and lets the next ready one go on.
  void Wait(Thread* self, const Site& site);
  // Abandons the block.
  [[noreturn]] void Fail(const std::string& what);
  // Zero bytes count as one. Lives until the block, under TSan the grid, is over.
  std::byte* AllocateShared(std::size_t bytes);
  bool NextIsLate();  // a cp.async
  void CountCollective() { ++collectives_; }

 private:
  friend class WorkerLease;

  static void ThreadMain();
  void Adopt();
  // False when the block failed.
  bool RunBlock(std::uint64_t block);
  void SetUpBlock(std::uint64_t block);
  void DescribeDeadlock();
  void AbandonBlock();
  void FreeShared();
  Thread* NextReady();
  void SwitchAway(Fiber& from);
  void Exit(Thread* self);
  std::uint64_t Random();
  void AddCounters();

  Fiber self_;
  std::vector<std::unique_ptr<Thread>> threads_;  // those of the block come first
  Block block_;
  Grid* grid_ = nullptr;
  unsigned num_threads_ = 0;  // of the block
  // Ready threads, each at most once: a ring of a power of two.
  std::vector<Thread*> ring_;
  std::size_t ring_head_ = 0, ring_count_ = 0;
  std::string failure_;
  std::uint64_t random_ = 1;
  std::vector<void*> shared_;
  std::uint64_t switches_ = 0, blocks_ = 0, collectives_ = 0;
};

// The thread of a kernel that runs now, and its worker.
inline thread_local constinit Thread* current_thread = nullptr;
inline thread_local constinit Worker* current_worker = nullptr;

std::string Describe(const Site& site);  // file name and line

}  // namespace cuda_emulation
