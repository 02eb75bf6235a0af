#include "engine/threads/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

// Property: every index of every loop runs exactly once, however many threads, with and without
// spinning. The counts are plain ints: TSan sees any index handed out twice or reported too early.
TEST(ThreadPoolTest, RunsEveryIndexOnce) {
  for (const absl::Duration spin : {absl::ZeroDuration(), absl::Microseconds(50)}) {
    for (const int num_threads : {1, 2, 3, 8}) {
      SCOPED_TRACE(absl::StrCat(num_threads, " threads"));
      ThreadPool pool({.num_threads = num_threads, .spin = spin});
      std::mt19937 random(num_threads);
      for (int loop = 0; loop < 300; ++loop) {
        std::vector<int> runs(random() % 40);
        std::vector<int> of_thread(num_threads);

        pool.ParallelFor(static_cast<int>(runs.size()), [&](int index, int thread) {
          ++runs[index];
          ++of_thread[thread];
        });

        ASSERT_TRUE(std::all_of(runs.begin(), runs.end(), [](int n) { return n == 1; }));
        int total = 0;
        for (const int count : of_thread) total += count;
        ASSERT_EQ(total, static_cast<int>(runs.size()));
      }
    }
  }
}

TEST(ThreadPoolTest, SleepersAreWokenAndIndicesRunAtTheSameTime) {
  ThreadPool pool({.num_threads = 2, .spin = absl::ZeroDuration()});
  for (int loop = 0; loop < 20; ++loop) {
    std::atomic<int> arrived = 0;

    // Each index waits for the other: the second thread has to come.
    pool.ParallelFor(2, [&](int, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });

    EXPECT_EQ(arrived.load(), 2);
  }
}

TEST(ThreadPoolTest, PoolsWorkSideBySide) {
  std::vector<std::thread> callers;
  std::vector<long> sums(3);
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&, c] {
      ThreadPool pool({.num_threads = 2, .spin = absl::Microseconds(10)});
      for (int loop = 0; loop < 200; ++loop) {
        std::vector<long> values(17);
        pool.ParallelFor(17, [&](int index, int) { values[index] = index; });
        for (const long value : values) sums[c] += value;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();

  for (const long sum : sums) EXPECT_EQ(sum, 200 * 136);
}

TEST(ThreadPoolTest, StopsWithoutEverHavingWorked) {
  for (int i = 0; i < 50; ++i) ThreadPool pool({.num_threads = 4});
}

// The threads may still be waking from the loop when they are told to stop.
TEST(ThreadPoolTest, StopsRightAfterALoop) {
  for (int i = 0; i < 500; ++i) {
    ThreadPool pool({.num_threads = 4, .spin = absl::ZeroDuration()});
    std::atomic<int> sum = 0;

    pool.ParallelFor(2, [&](int index, int) { sum += index + 1; });

    ASSERT_EQ(sum.load(), 3);
  }
}

TEST(ThreadPoolTest, LowersThePriorityOfItsOwnThreadsOnly) {
  const auto nice_now = [] {
    return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
  };
  const int before = nice_now();
  const int expected = std::min(19, before + 3);
  ThreadPool pool({.num_threads = 2, .nice = 3, .batch = true});
  std::atomic<int> arrived = 0;
  int nice[2] = {};

  pool.ParallelFor(2, [&](int, int thread) {
    nice[thread] = nice_now();
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });

  EXPECT_EQ(nice[0], before);
  EXPECT_EQ(nice[1], expected);
}

}  // namespace
}  // namespace baton::engine
