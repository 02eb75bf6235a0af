#include "text/tokenizer/byte_pair_merge.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace baton::text {
namespace {

// The definition, in O(n^2): again and again the pair of the lowest rank, leftmost first.
std::vector<std::int32_t> MergeByDefinition(const MergeTable& table,
                                            std::vector<std::int32_t> symbols) {
  while (true) {
    const PairMerge* best = nullptr;
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const PairMerge* merge = table.Find(symbols[i], symbols[i + 1]);
      if (merge == nullptr || (best != nullptr && merge->rank >= best->rank)) continue;
      best = merge;
      best_at = i;
    }
    if (best == nullptr) return symbols;
    symbols[best_at] = best->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

// Property: words short and long are merged as the definition says.
TEST(BytePairMergeTest, FollowsTheDefinition) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    MergeTable table;
    const int num_merges = static_cast<int>(random() % 60);
    for (int rank = 0; rank < num_merges; ++rank) {
      const auto symbol = [&] { return static_cast<std::int32_t>(random() % (4 + rank)); };
      const std::int32_t left = symbol();
      table.Add(left, symbol(), {rank, 4 + rank});
    }
    std::vector<std::int32_t> symbols(random() % 200);
    for (auto& symbol : symbols) symbol = static_cast<std::int32_t>(random() % 4);
    const std::vector<std::int32_t> expected = MergeByDefinition(table, symbols);

    MergePairs(table, symbols);

    EXPECT_EQ(symbols, expected);
  }
}

// A text that no pre-tokenizer cuts must not cost quadratic time: counts work, not seconds.
TEST(BytePairMergeTest, WorkGrowsLinearlyForAMegabyteOfOneLetter) {
  MergeTable table;
  for (std::int32_t rank = 0; rank < 10; ++rank) table.Add(rank, rank, {rank, rank + 1});
  MergeWork small;
  MergeWork large;
  std::vector<std::int32_t> thousand(1 << 10, 0);
  std::vector<std::int32_t> million(1 << 20, 0);

  MergePairs(table, thousand, &small);
  MergePairs(table, million, &large);

  EXPECT_EQ(million, std::vector<std::int32_t>(1 << 10, 10));
  EXPECT_LE(large.num_lookups, 1100 * small.num_lookups);
  EXPECT_LE(large.num_heap_steps, 1100 * small.num_heap_steps);
  EXPECT_LE(large.num_heap_steps + large.num_lookups, 8u << 20);
}

}  // namespace
}  // namespace baton::text
