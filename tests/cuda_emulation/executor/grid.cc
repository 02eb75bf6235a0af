#include "cuda_emulation/executor/grid.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <thread>
#include <vector>

#include "cuda_emulation/executor/statistics.h"
#include "cuda_emulation/executor/worker.h"
#include "cuda_emulation/options.h"
#include "cuda_emulation/sanitizers.h"

namespace cuda_emulation {
namespace {

std::mutex schedule_mutex;
Schedule& GuardedSchedule() {
  static Schedule schedule = TheOptions().schedule;
  return schedule;
}

// The grids that run now, and the OS threads that help with them. A grid of one block needs no
// help; several grids share the helpers in turn.
class GridQueue {
 public:
  static GridQueue& Get() {
    static auto* queue = new GridQueue;  // never destroyed: streams may outlive main
    return *queue;
  }

  void Run(Grid& grid) {
    if (helpers_wanted_ == 0 || grid.num_blocks == 1) {
      Worker::Mine().Work(grid);
      return;
    }
    Add(grid);
    Worker::Mine().Work(grid);
    std::unique_lock lock(mutex_);
    grids_.remove(&grid);
    done_.wait(lock, [&grid] { return grid.helpers == 0; });
  }

 private:
  GridQueue() : helpers_wanted_(TheOptions().workers - 1) {}

  void Add(Grid& grid) {
    const std::lock_guard lock(mutex_);
    for (; num_helpers_ < helpers_wanted_; ++num_helpers_) {
      SeenLocks seen;
      std::thread([this] { Help(); }).detach();
    }
    grids_.push_back(&grid);
    changed_.notify_all();
  }

  // Helps with whatever has blocks left, for ever.
  void Help() {
    Quiet quiet;
    UnseenLocks unseen;
    for (;;) {
      std::unique_lock lock(mutex_);
      Grid* grid = nullptr;
      changed_.wait(lock, [&] { return (grid = NextWithWork()) != nullptr; });
      ++grid->helpers;
      lock.unlock();
      Worker::Mine().Work(*grid);
      lock.lock();
      if (--grid->helpers == 0) done_.notify_all();
    }
  }

  Grid* NextWithWork() {
    for (auto at = grids_.begin(); at != grids_.end(); ++at) {
      Grid* grid = *at;
      if (grid->next_block.load() >= grid->num_blocks) continue;
      grids_.splice(grids_.end(), grids_, at);  // the next helper takes another
      return grid;
    }
    return nullptr;
  }

  const int helpers_wanted_;
  std::mutex mutex_;
  std::condition_variable changed_, done_;
  std::list<Grid*> grids_;
  int num_helpers_ = 0;
};

}  // namespace

void Grid::Fail(const std::string& message) {
  const std::lock_guard lock(mutex);
  next_block = num_blocks;
  if (result.error != cudaSuccess) return;
  result = {cudaErrorLaunchFailure, std::string(spec.name) + ": " + message};
}

GridResult RunGrid(const GridSpec& spec) {
  const std::uint64_t num_blocks = std::uint64_t{spec.grid.x} * spec.grid.y * spec.grid.z;
  ++TheStatistics().grids;
  Grid grid{spec, CurrentSchedule(), num_blocks};
  GridQueue::Get().Run(grid);
  AcquireUnseen(&grid.end_tag);
  return grid.result;
}

void SetSchedule(const Schedule& schedule) {
  const std::lock_guard lock(schedule_mutex);
  GuardedSchedule() = schedule;
}

Schedule CurrentSchedule() {
  const std::lock_guard lock(schedule_mutex);
  return GuardedSchedule();
}

Statistics& TheStatistics() {
  static auto* statistics = new Statistics;
  return *statistics;
}

Counters CountersSoFar() {
  const Statistics& now = TheStatistics();
  return {.grids = now.grids,
          .blocks = now.blocks,
          .switches = now.switches,
          .collectives = now.collectives,
          .copies = now.copies,
          .host_waits = now.host_waits,
          .allocations = now.allocations,
          .graph_launches = now.graph_launches};
}

}  // namespace cuda_emulation
