#include "engine/kv/block_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

// Every block's reference count is the number of live lists that hold it, and free means zero.
void ExpectBooksBalance(const BlockAllocator& allocator, const std::vector<BlockList>& live) {
  std::vector<int> owners(allocator.num_blocks(), 0);
  for (const BlockList& list : live) {
    for (int i = 0; i < list.size(); ++i) {
      ASSERT_EQ(list.ids()[i] == kNoBlock, i < list.num_holes());
      if (i >= list.num_holes()) ++owners.at(list.ids()[i]);
    }
  }
  int num_used = 0;
  for (int id = 0; id < allocator.num_blocks(); ++id) {
    ASSERT_EQ(allocator.reference_count(id), owners[id]) << "block " << id;
    if (owners[id] > 0) ++num_used;
  }
  ASSERT_EQ(allocator.num_used(), num_used);
  ASSERT_EQ(allocator.num_free(), allocator.num_blocks() - num_used);
}

TEST(BlockAllocatorTest, GivesLowIdsFirstInOrder) {
  BlockAllocator allocator(4);

  auto list = allocator.Allocate(3);

  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->ids(), (std::vector<BlockId>{0, 1, 2}));
}

TEST(BlockAllocatorTest, GivesNothingWhenTooFewAreFree) {
  BlockAllocator allocator(4);
  auto first = allocator.Allocate(3);

  auto second = allocator.Allocate(2);

  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(allocator.num_free(), 1);
}

TEST(BlockAllocatorTest, RefusesCountsThatCanNeverSucceed) {
  BlockAllocator allocator(4);

  for (const int count : {-1, 0, 5}) {
    EXPECT_EQ(allocator.Allocate(count).status().code(), absl::StatusCode::kInvalidArgument)
        << count;
  }
}

TEST(BlockAllocatorTest, SharedBlocksAreFreeOnlyWhenEveryOwnerGaveThemBack) {
  BlockAllocator allocator(4);
  auto list = allocator.Allocate(3);
  BlockList shared = allocator.Share(*list, 2);

  list->Clear();

  EXPECT_EQ(allocator.num_free(), 2);
  EXPECT_EQ(shared.ids(), (std::vector<BlockId>{0, 1}));
  shared.Clear();
  EXPECT_EQ(allocator.num_free(), 4);
}

TEST(BlockAllocatorTest, MovedFromListsAreEmptyAndGiveNothingBack) {
  BlockAllocator allocator(4);
  auto list = allocator.Allocate(2);

  BlockList moved = *std::move(list);

  EXPECT_EQ(list->size(), 0);
  list->Clear();
  EXPECT_EQ(allocator.num_used(), 2);
  EXPECT_EQ(moved.size(), 2);
}

TEST(BlockAllocatorTest, GivesBackTheFrontOfAListAndKeepsThePlacesOfTheRest) {
  BlockAllocator allocator(6);
  auto list = allocator.Allocate(4);

  list->ReleaseFront(3);
  list->ReleaseFront(1);  // is so already

  EXPECT_EQ(list->ids(), (std::vector<BlockId>{kNoBlock, kNoBlock, kNoBlock, 3}));
  EXPECT_EQ(list->size(), 4);
  EXPECT_EQ(list->num_held(), 1);
  EXPECT_EQ(allocator.num_free(), 5);
  list->Append(*allocator.Allocate(1));
  EXPECT_EQ(list->ids(), (std::vector<BlockId>{kNoBlock, kNoBlock, kNoBlock, 3, 0}));
  BlockList moved = *std::move(list);
  EXPECT_EQ(moved.num_holes(), 3);
  moved.Clear();
  EXPECT_EQ(allocator.num_free(), 6);
  EXPECT_EQ(moved.num_held(), 0);
}

TEST(BlockAllocatorTest, AListMayBeginWithPlacesThatNeverHeldABlock) {
  BlockAllocator allocator(6);
  BlockList list;
  list.PrependHoles(2);
  EXPECT_EQ(list.num_held(), 0);

  list.Append(*allocator.Allocate(2));

  EXPECT_EQ(list.ids(), (std::vector<BlockId>{kNoBlock, kNoBlock, 0, 1}));
  list.ReleaseFront(4);
  EXPECT_EQ(list.num_held(), 0);
  EXPECT_EQ(allocator.num_free(), 6);
}

// Property: under any order of allocations, shares, joins and releases, whole or of the front, no
// block is lost or doubled.
TEST(BlockAllocatorTest, BooksBalanceUnderRandomTraffic) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    BlockAllocator allocator(/*num_blocks=*/17);
    std::vector<BlockList> live;
    for (int step = 0; step < 200; ++step) {
      SCOPED_TRACE(absl::StrCat("step ", step));
      const unsigned action = live.empty() ? 0 : random() % 5;
      if (action == 0) {
        auto list = allocator.Allocate(1 + static_cast<int>(random() % 8));
        if (list.ok()) live.push_back(*std::move(list));
      } else if (action == 1) {
        const BlockList& list = live[random() % live.size()];
        const int count = static_cast<int>(random() % (list.size() + 1));
        if (list.num_holes() == 0) live.push_back(allocator.Share(list, count));
      } else if (action == 2) {
        if (live.back().num_holes() > 0) continue;
        BlockList tail = std::move(live.back());
        live.pop_back();
        if (!live.empty()) live[random() % live.size()].Append(std::move(tail));
      } else if (action == 3) {
        BlockList& list = live[random() % live.size()];
        list.ReleaseFront(static_cast<int>(random() % (list.size() + 1)));
      } else {
        std::swap(live[random() % live.size()], live.back());
        live.pop_back();
      }
      ExpectBooksBalance(allocator, live);
    }
    live.clear();
    EXPECT_EQ(allocator.num_free(), 17);
  }
}

// Threads that allocate, share and release at once: run under TSan, and no block is lost.
TEST(BlockAllocatorTest, BooksBalanceAfterManyThreads) {
  BlockAllocator allocator(/*num_blocks=*/32);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&allocator, seed] {
      std::mt19937 random(seed);
      std::vector<BlockList> live;
      for (int step = 0; step < 2000; ++step) {
        auto list = allocator.Allocate(1 + static_cast<int>(random() % 6));
        if (list.ok()) {
          live.push_back(allocator.Share(*list, list->size() / 2));
          live.push_back(*std::move(list));
        }
        if (live.size() > random() % 6) live.erase(live.begin() + random() % live.size());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(allocator.num_free(), 32);
  for (BlockId block = 0; block < 32; ++block) EXPECT_EQ(allocator.reference_count(block), 0);
}

}  // namespace
}  // namespace baton::engine
