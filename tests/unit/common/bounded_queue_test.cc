#include "common/bounded_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace baton {
namespace {

TEST(BoundedQueueTest, RefusesWhenFullAndLeavesTheItemAlone) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  auto item = std::make_unique<int>(2);

  EXPECT_FALSE(queue.TryPush(std::move(item)));

  ASSERT_NE(item, nullptr);
  EXPECT_EQ(*item, 2);
}

TEST(BoundedQueueTest, PopGivesUpAtItsDeadline) {
  BoundedQueue<int> queue(1);

  EXPECT_EQ(queue.Pop(absl::Now() + absl::Milliseconds(5)), std::nullopt);
}

TEST(BoundedQueueTest, CloseKeepsWhatWasQueued) {
  BoundedQueue<int> queue(4);
  ASSERT_TRUE(queue.TryPush(7));

  queue.Close();

  EXPECT_FALSE(queue.TryPush(8));
  EXPECT_EQ(queue.Pop(absl::InfiniteFuture()), 7);
  EXPECT_EQ(queue.Pop(absl::InfiniteFuture()), std::nullopt);
}

// Property: with several producers and consumers every item comes out once, per producer in order.
TEST(BoundedQueueTest, DeliversEveryItemOnceInEachProducersOrder) {
  constexpr int kProducers = 3;
  constexpr int kItems = 2000;
  BoundedQueue<std::pair<int, int>> queue(8);
  std::vector<std::thread> producers;
  for (int producer = 0; producer < kProducers; ++producer) {
    producers.emplace_back([&queue, producer] {
      for (int i = 0; i < kItems; ++i) {
        ASSERT_TRUE(queue.Push({producer, i}, absl::InfiniteFuture()));
      }
    });
  }

  std::vector<int> next(kProducers, 0);
  for (int count = 0; count < kProducers * kItems;) {
    for (const auto& [producer, i] : queue.PopAll(absl::Now() + absl::Seconds(30))) {
      ASSERT_EQ(i, next[producer]++);
      ++count;
    }
  }

  for (auto& thread : producers) thread.join();
  EXPECT_EQ(queue.size(), 0u);
}

}  // namespace
}  // namespace baton
