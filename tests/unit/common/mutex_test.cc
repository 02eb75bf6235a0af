#include "common/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace baton {
namespace {

TEST(MutexTest, LetsOneThreadInAtATime) {
  Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        MutexLock lock(&mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(count, 4000);
}

// Two threads that wait for each other's change, some of it made just before waiting.
TEST(MutexTest, WakesWhoeverWaitsForAChange) {
  constexpr int kRounds = 500;
  Mutex mutex;
  int turn = 0;
  const auto play = [&](int parity) {
    for (int round = 0; round < kRounds; ++round) {
      MutexLock lock(&mutex);
      mutex.Await([&] { return turn % 2 == parity; });
      ++turn;
    }
  };

  std::thread even([&] { play(0); });
  std::thread odd([&] { play(1); });
  even.join();
  odd.join();

  EXPECT_EQ(turn, 2 * kRounds);
}

TEST(MutexTest, AChangeMadeJustBeforeWaitingWakesOthers) {
  Mutex mutex;
  bool first = false, second = false;
  std::thread other([&] {
    MutexLock lock(&mutex);
    mutex.Await([&] { return first; });
    second = true;
  });
  {
    MutexLock lock(&mutex);
    first = true;
    mutex.Await([&] { return second; });  // without an Unlock between
  }
  other.join();

  EXPECT_TRUE(second);
}

TEST(MutexTest, GivesUpAtTheDeadline) {
  Mutex mutex;
  MutexLock lock(&mutex);

  EXPECT_FALSE(mutex.AwaitWithTimeout([] { return false; }, absl::Milliseconds(5)));
  EXPECT_FALSE(mutex.AwaitWithDeadline([] { return false; }, absl::InfinitePast()));
  EXPECT_TRUE(mutex.AwaitWithDeadline([] { return true; }, absl::InfinitePast()));
}

}  // namespace
}  // namespace baton
