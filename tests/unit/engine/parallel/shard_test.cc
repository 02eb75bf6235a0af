#include "engine/parallel/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

ModelPlan PlanOf(int num_heads, int num_kv_heads, int intermediate_size, int hidden_size,
                 int vocab_size) {
  ModelPlan plan;
  plan.hidden_size = hidden_size;
  plan.vocab_size = vocab_size;
  plan.layers.resize(2);
  for (LayerPlan& layer : plan.layers) {
    layer.num_heads = num_heads;
    layer.num_kv_heads = num_kv_heads;
    layer.head_dim = 16;
    layer.intermediate_size = intermediate_size;
  }
  return plan;
}

std::vector<Shard> AllShards(const ModelPlan& plan, int world_size) {
  std::vector<Shard> shards;
  for (int rank = 0; rank < world_size; ++rank) {
    auto shard = MakeShard(plan, world_size, rank);
    EXPECT_TRUE(shard.ok()) << shard.status();
    if (shard.ok()) shards.push_back(*std::move(shard));
  }
  return shards;
}

// `range_of` of the shards covers [0, count) in order, each index once, no shard without any.
template <class RangeOf>
void ExpectDealtOut(const std::vector<Shard>& shards, int count, const RangeOf& range_of) {
  int next = 0;
  for (const Shard& shard : shards) {
    const IndexRange range = range_of(shard);
    EXPECT_EQ(range.begin, next) << "rank " << shard.rank;
    EXPECT_GT(range.size(), 0) << "rank " << shard.rank;
    next = range.end;
  }
  EXPECT_EQ(next, count);
}

// Property: whatever the model and the group, everything is held once, and every rank has the KV
// heads that its query heads read.
TEST(ShardTest, DealsOutEveryHeadAndColumnOnce) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const int num_kv_heads = 1 + static_cast<int>(random() % 12);
    const int group = 1 + static_cast<int>(random() % 8);
    const int num_heads = num_kv_heads * group;
    const int world_size = 1 + static_cast<int>(random() % std::min(num_heads, 16));
    const int intermediate = world_size + static_cast<int>(random() % 700);
    const int hidden = world_size + static_cast<int>(random() % 700);
    const int vocab = world_size + static_cast<int>(random() % 700);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", num_heads, " heads, ", num_kv_heads,
                              " KV heads, ", world_size, " ranks"));
    const ModelPlan plan = PlanOf(num_heads, num_kv_heads, intermediate, hidden, vocab);

    const std::vector<Shard> shards = AllShards(plan, world_size);

    ASSERT_EQ(shards.size(), static_cast<std::size_t>(world_size));
    const auto layer = [](const Shard& shard) { return shard.layers[1]; };
    ExpectDealtOut(shards, num_heads, [&](const Shard& shard) { return layer(shard).heads; });
    ExpectDealtOut(shards, intermediate,
                   [&](const Shard& shard) { return layer(shard).intermediate; });
    ExpectDealtOut(shards, hidden, [](const Shard& shard) { return shard.hidden; });
    ExpectDealtOut(shards, vocab, [](const Shard& shard) { return shard.vocab; });
    for (const Shard& shard : shards) {
      const IndexRange kv_heads = layer(shard).kv_heads;
      EXPECT_GT(kv_heads.size(), 0);
      const IndexRange heads = layer(shard).heads;
      for (int head = heads.begin; head < heads.end; ++head) {
        // As ops find the KV head: by local numbers.
        const int local = (head - heads.begin) / (heads.size() / kv_heads.size());
        EXPECT_EQ(kv_heads.begin + local, head / group)
            << "rank " << shard.rank << " head " << head;
      }
    }
  }
}

TEST(ShardTest, KeepsRunsOf32WhereEveryRankGetsOne) {
  for (const Shard& shard : AllShards(PlanOf(12, 12, 1000, 352, 32 * 12 + 5), 11)) {
    SCOPED_TRACE(absl::StrCat("rank ", shard.rank));
    EXPECT_EQ(shard.layers[0].intermediate.begin % 32, 0);
    EXPECT_EQ(shard.hidden.begin % 32, 0);
    EXPECT_EQ(shard.vocab.begin % 32, 0);
  }
}

TEST(ShardTest, RepeatsKvHeadsWhereThereAreMoreRanks) {
  const std::vector<Shard> shards = AllShards(PlanOf(9, 3, 64, 64, 64), 5);

  std::vector<IndexRange> heads, kv_heads;
  for (const Shard& shard : shards) {
    heads.push_back(shard.layers[0].heads);
    kv_heads.push_back(shard.layers[0].kv_heads);
  }
  EXPECT_EQ(kv_heads, (std::vector<IndexRange>{{0, 1}, {0, 1}, {1, 2}, {1, 2}, {2, 3}}));
  EXPECT_EQ(heads, (std::vector<IndexRange>{{0, 2}, {2, 3}, {3, 5}, {5, 6}, {6, 9}}));
}

TEST(ShardTest, SaysWhatDoesNotFit) {
  const ModelPlan plan = PlanOf(9, 3, 64, 64, 64);

  EXPECT_EQ(MakeShard(plan, 0, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeShard(plan, 2, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeShard(plan, 2, -1).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status heads = MakeShard(plan, 10, 0).status();
  EXPECT_EQ(heads.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(heads.message(),
            "tensor-parallel size too large for the model: 10 ranks, 9 query heads; lower it to at "
            "most 9");
  EXPECT_EQ(MakeShard(PlanOf(9, 3, 4, 64, 64), 5, 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MakeShard(PlanOf(9, 3, 64, 4, 64), 5, 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MakeShard(PlanOf(9, 3, 64, 64, 4), 5, 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ShardTest, LocalPlanHasTheShardsSizesAndNothingElseChanged) {
  ModelPlan plan = PlanOf(9, 3, 128, 64, 100);
  plan.layers[1].window = 5;

  const auto shard = MakeShard(plan, 2, 0);
  ASSERT_TRUE(shard.ok()) << shard.status();
  const ModelPlan local = LocalPlan(plan, *shard);

  EXPECT_EQ(local.hidden_size, 64);
  EXPECT_EQ(local.vocab_size, 100);
  EXPECT_EQ(local.layers[1].num_heads, 6);
  EXPECT_EQ(local.layers[1].num_kv_heads, 2);
  EXPECT_EQ(local.layers[1].intermediate_size, 64);
  EXPECT_EQ(local.layers[1].head_dim, 16);
  EXPECT_EQ(local.layers[1].window, 5);
}

}  // namespace
}  // namespace baton::engine
