#include "session/write_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::session {
namespace {

using Queue = WriteQueue<int>;

TEST(WriteQueueTest, StartsTheFirstAndQueuesTheRest) {
  Queue queue(/*capacity=*/2);

  EXPECT_EQ(queue.Push(1), Queue::Result::kStart);
  EXPECT_EQ(queue.Push(2), Queue::Result::kQueued);
  EXPECT_EQ(queue.Push(3), Queue::Result::kQueued);
  EXPECT_EQ(queue.Push(4), Queue::Result::kFull);

  EXPECT_EQ(queue.front(), 1);
  EXPECT_TRUE(queue.Done());
  EXPECT_EQ(queue.front(), 2);
  EXPECT_TRUE(queue.Done());
  EXPECT_EQ(queue.front(), 3);
  EXPECT_FALSE(queue.Done());
  EXPECT_FALSE(queue.in_flight());
}

TEST(WriteQueueTest, KeepsWhatIsInFlightWhenTheRestIsDropped) {
  Queue queue(/*capacity=*/8);
  queue.Push(1);
  queue.Push(2);

  queue.DropWaiting();

  EXPECT_EQ(queue.front(), 1);
  EXPECT_FALSE(queue.Done());
  EXPECT_EQ(queue.size(), 0u);
}

// Property: at most one write is in flight, and what was accepted is written once and in order.
TEST(WriteQueueTest, WritesInOrderUnderRandomTraffic) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Queue queue(/*capacity=*/5);
    std::vector<int> accepted, written;
    bool in_flight = false;
    for (int step = 0; step < 300; ++step) {
      if (random() % 2 == 0) {
        const Queue::Result result = queue.Push(step);
        if (result != Queue::Result::kFull) accepted.push_back(step);
        if (result == Queue::Result::kStart) {
          ASSERT_FALSE(in_flight);
          in_flight = true;
        }
      } else if (in_flight) {
        written.push_back(queue.front());
        in_flight = queue.Done();
      }
    }
    while (in_flight) {
      written.push_back(queue.front());
      in_flight = queue.Done();
    }
    EXPECT_EQ(written, accepted);
  }
}

}  // namespace
}  // namespace baton::session
