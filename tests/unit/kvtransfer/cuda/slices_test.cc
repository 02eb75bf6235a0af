#include "kvtransfer/cuda/slices.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "absl/strings/str_cat.h"

namespace baton::kvtransfer::cuda {
namespace {

// Property: for every head that a destination rank holds, every token's K and V comes from exactly
// one source rank, once; nothing else comes; no slice crosses a destination block.
TEST(SlicesTest, EveryByteOfEveryDestinationRankIsSentOnce) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const int sizes[] = {16, 32, 64};
    const SliceShape shape{.num_kv_heads = 1 + static_cast<int>(random() % 9),
                           .head_bytes = 16u * (1 + random() % 3),
                           .source_block_size = sizes[random() % 3],
                           .source_ranks = 1 + static_cast<int>(random() % 6),
                           .destination_block_size = sizes[random() % 3],
                           .destination_ranks = 1 + static_cast<int>(random() % 6)};
    SCOPED_TRACE(absl::StrCat("round ", round, ": ", shape.num_kv_heads, " heads, ranks ",
                              shape.source_ranks, " to ", shape.destination_ranks, ", blocks ",
                              shape.source_block_size, " to ", shape.destination_block_size));
    for (int to = 0; to < shape.destination_ranks; ++to) {
      std::multiset<std::tuple<int, int, std::size_t>> seen;  // K or V, head, row
      for (int from = 0; from < shape.source_ranks; ++from) {
        const IndexRange held = KvHeadsOfRank(shape.num_kv_heads, shape.source_ranks, from);
        const std::size_t rows = static_cast<std::size_t>(shape.source_block_size);
        for (const Slice& slice : SlicesOf(shape, from, to)) {
          ASSERT_EQ(slice.offset % shape.head_bytes, 0u);
          ASSERT_EQ(slice.bytes % shape.head_bytes, 0u);
          for (std::size_t at = slice.offset; at < slice.offset + slice.bytes;
               at += shape.head_bytes) {
            const std::size_t unit = at / shape.head_bytes;
            seen.emplace(static_cast<int>(unit / (rows * held.size())),
                         held.begin + static_cast<int>(unit / rows % held.size()), unit % rows);
          }
          if (shape.source_block_size > shape.destination_block_size) {
            ASSERT_LE(slice.bytes, shape.destination_block_size * shape.head_bytes);
          }
        }
      }
      std::multiset<std::tuple<int, int, std::size_t>> expected;
      const IndexRange held = KvHeadsOfRank(shape.num_kv_heads, shape.destination_ranks, to);
      for (int part = 0; part < 2; ++part) {
        for (int head = held.begin; head < held.end; ++head) {
          for (int row = 0; row < shape.source_block_size; ++row) expected.emplace(part, head, row);
        }
      }
      EXPECT_EQ(seen, expected) << "destination rank " << to;
    }
  }
}

TEST(SlicesTest, EqualCutsSendWholeBlocks) {
  const SliceShape shape{.num_kv_heads = 8,
                         .head_bytes = 128,
                         .source_block_size = 16,
                         .source_ranks = 2,
                         .destination_block_size = 16,
                         .destination_ranks = 2};
  EXPECT_EQ(SlicesOf(shape, 1, 1), (std::vector<Slice>{{0, 2 * 4 * 16 * 128}}));
  EXPECT_EQ(PairsOf(shape), (std::vector<RankPair>{{0, 0}, {1, 1}}));
}

TEST(SlicesTest, ReplicatedHeadsAreSentByTheirFirstHolder) {
  const SliceShape shape{.num_kv_heads = 2,
                         .head_bytes = 16,
                         .source_block_size = 16,
                         .source_ranks = 4,
                         .destination_block_size = 16,
                         .destination_ranks = 1};
  EXPECT_EQ(PairsOf(shape), (std::vector<RankPair>{{0, 0}, {2, 0}}));
}

}  // namespace
}  // namespace baton::kvtransfer::cuda
