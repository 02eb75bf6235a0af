#include "kvtransfer/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"

namespace baton::kvtransfer {
namespace {

using ::testing::HasSubstr;

constexpr BlockLayout kLayout{
    .num_layers = 3, .num_kv_heads = 2, .head_dim = 4, .block_size = 2, .block_bytes = 64};

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

std::vector<std::int32_t> RandomBlocks(int count, int pool, std::mt19937& random) {
  std::vector<std::int32_t> ids(pool);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(count);
  return ids;
}

TEST(PlanTest, MovesEachBlockWholeInPromptOrder) {
  const std::vector<std::int32_t> source = {7, 1, 5};
  const std::vector<std::int32_t> destination = {0, 9, 4};

  auto copies = PlanCopies({kLayout, kLayout, source, destination}, 2, 1, 3);

  ASSERT_TRUE(copies.ok()) << copies.status();
  const std::vector<Copy> expected = {{.source_block = 1, .destination_block = 9, .bytes = 64},
                                      {.source_block = 5, .destination_block = 4, .bytes = 64}};
  EXPECT_EQ(*copies, expected);
}

// The first row after a prompt of n tokens stands at position n and sees [n - w + 1, n].
TEST(PlanTest, BlocksBehindEveryLaterRowsWindowDoNotMove) {
  ModelFingerprint fingerprint{.num_layers = 5, .block_size = 4};
  fingerprint.windows = {0, 1, 4, 5, 100};

  EXPECT_EQ(FirstMovedBlocks(fingerprint, 3), (std::vector<int>{0, 0, 0, 0, 0}));
  EXPECT_EQ(FirstMovedBlocks(fingerprint, 7), (std::vector<int>{0, 1, 1, 0, 0}));
  EXPECT_EQ(FirstMovedBlocks(fingerprint, 8), (std::vector<int>{0, 2, 1, 1, 0}));
  EXPECT_EQ(FirstMovedBlocks(fingerprint, 102), (std::vector<int>{0, 25, 24, 24, 0}));
  EXPECT_EQ(FirstMovedBlocks(fingerprint, 103), (std::vector<int>{0, 25, 25, 24, 1}));
  fingerprint.windows.clear();
  EXPECT_EQ(FirstMovedBlocks(fingerprint, 103), (std::vector<int>{0, 0, 0, 0, 0}));
}

TEST(PlanTest, AnEmptyRangeNeedsNoCopies) {
  const std::vector<std::int32_t> blocks = {1, 2};
  auto copies = PlanCopies({kLayout, kLayout, blocks, blocks}, 0, 2, 2);
  ASSERT_TRUE(copies.ok());
  EXPECT_TRUE(copies->empty());
}

TEST(PlanTest, RefusesLayoutsThatDifferAndNamesTheField) {
  const std::vector<std::int32_t> blocks = {1};
  BlockLayout other = kLayout;
  other.num_kv_heads = 1;

  auto copies = PlanCopies({kLayout, other, blocks, blocks}, 0, 0, 1);

  EXPECT_EQ(copies.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(copies.status()), HasSubstr("num_kv_heads is 2 at the source and 1"));
}

TEST(PlanTest, RefusesWhatLiesOutsideTheTables) {
  const std::vector<std::int32_t> two = {1, 2};
  const std::vector<std::int32_t> one = {1};
  const std::vector<std::int32_t> negative = {1, -2};
  const auto code = [](const TransferTables& tables, int layer, int first, int last) {
    return PlanCopies(tables, layer, first, last).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

  EXPECT_EQ(code({kLayout, kLayout, two, two}, 3, 0, 1), kInvalid);
  EXPECT_EQ(code({kLayout, kLayout, two, two}, -1, 0, 1), kInvalid);
  EXPECT_EQ(code({kLayout, kLayout, two, two}, 0, 0, 3), kInvalid);
  EXPECT_EQ(code({kLayout, kLayout, two, two}, 0, 2, 1), kInvalid);
  EXPECT_EQ(code({kLayout, kLayout, two, two}, 0, -1, 1), kInvalid);
  EXPECT_EQ(code({kLayout, kLayout, two, one}, 0, 0, 1), kInvalid);
  EXPECT_EQ(code({kLayout, kLayout, negative, two}, 0, 0, 2), kInvalid);
  EXPECT_EQ(code({kLayout, kLayout, two, negative}, 0, 0, 2), kInvalid);
}

// Property: whatever the tables and however the prompt is cut into puts, executing the plan brings
// every byte of every block to its place exactly once and touches nothing else.
TEST(PlanTest, EveryByteArrivesExactlyOnce) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    BlockLayout layout = kLayout;
    layout.num_layers = 1 + random() % 4;
    layout.block_bytes = 1 + random() % 100;
    const int source_pool = 1 + random() % 40;
    const int destination_pool = 1 + random() % 40;
    const int count = 1 + random() % std::min(source_pool, destination_pool);
    const auto source_blocks = RandomBlocks(count, source_pool, random);
    const auto destination_blocks = RandomBlocks(count, destination_pool, random);
    const std::size_t bytes = layout.block_bytes;
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      std::vector<std::uint8_t> source(source_pool * bytes);
      for (auto& byte : source) byte = static_cast<std::uint8_t>(random());
      std::vector<std::uint8_t> destination(destination_pool * bytes, 0xee);
      std::vector<int> writes(destination.size(), 0);

      for (int first = 0; first < count;) {
        const int last = first + 1 + static_cast<int>(random() % (count - first));
        auto copies =
            PlanCopies({layout, layout, source_blocks, destination_blocks}, layer, first, last);
        ASSERT_TRUE(copies.ok()) << copies.status();
        for (const Copy& copy : *copies) {
          ASSERT_LE(copy.source_offset + copy.bytes, bytes);
          ASSERT_LE(copy.destination_offset + copy.bytes, bytes);
          const std::size_t to = copy.destination_block * bytes + copy.destination_offset;
          std::memcpy(&destination[to], &source[copy.source_block * bytes + copy.source_offset],
                      copy.bytes);
          for (std::size_t i = 0; i < copy.bytes; ++i) ++writes[to + i];
        }
        first = last;
      }

      for (int block = 0; block < count; ++block) {
        ASSERT_EQ(0, std::memcmp(&destination[destination_blocks[block] * bytes],
                                 &source[source_blocks[block] * bytes], bytes));
      }
      EXPECT_EQ(std::count(writes.begin(), writes.end(), 1),
                static_cast<std::ptrdiff_t>(count * bytes));
      EXPECT_EQ(std::count(writes.begin(), writes.end(), 0),
                static_cast<std::ptrdiff_t>(writes.size() - count * bytes));
    }
  }
}

}  // namespace
}  // namespace baton::kvtransfer
