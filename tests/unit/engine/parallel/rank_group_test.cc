#include "engine/parallel/rank_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/parallel/core_affinity.h"
#include "tests/support/failing_ops.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/rank_group_engine.h"

namespace baton::engine {
namespace {

const std::vector<std::int32_t> kTokens = {1, 2, 3, 4, 5};
const std::vector<BlockId> kBlocks = {0, 1};

SequenceStep OneStep() { return {.tokens = kTokens, .block_table = kBlocks}; }

// A group of which `before_mlp(rank, layer)` may fail a rank.
std::unique_ptr<RankGroup> MakeGroup(
    int world_size, const std::function<absl::Status(int rank, int layer)>& before_mlp) {
  const testing::EngineSetup setup{
      .backend = testing::Backend::kCpu, .block_size = 4, .max_rows = 16, .kv_tokens = 64};
  auto group = testing::MakeCpuRankGroup(
      testing::MakeRandomCheckpoint(testing::TinyMetadata(), checkpoint::DType::kF32, 1), setup,
      world_size, [&before_mlp](int rank, std::unique_ptr<Ops> ops) {
        return std::make_unique<testing::FailingOps>(
            std::move(ops), [before_mlp, rank](int layer) { return before_mlp(rank, layer); });
      });
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

TEST(RankGroupTest, TellsOfALayerOnceAllRanksHaveWrittenIt) {
  const auto group = MakeGroup(3, [](int, int) { return absl::OkStatus(); });
  const int num_layers = static_cast<int>(group->runner(0).plan().layers.size());
  const std::size_t layer_bytes = group->kv(0).layout().block_bytes();
  const SequenceStep step = OneStep();
  std::vector<int> told;

  const absl::Status status =
      group->Step({&step, 1}, {.on_layer = [&](int layer) {
                    told.push_back(layer);
                    for (int rank = 0; rank < 3; ++rank) {
                      const std::byte* block = group->kv(rank).Block(layer, 0).data();
                      EXPECT_TRUE(std::any_of(block, block + layer_bytes,
                                              [](std::byte byte) { return byte != std::byte{0}; }))
                          << "rank " << rank << ", layer " << layer;
                    }
                  }});

  ASSERT_TRUE(status.ok()) << status;
  std::vector<int> all(num_layers);
  for (int layer = 0; layer < num_layers; ++layer) all[layer] = layer;
  EXPECT_EQ(told, all);
}

TEST(RankGroupTest, OneRanksFailureEndsTheGroupAndLaterStepsSayWhy) {
  for (const int failing : {0, 1, 2}) {
    SCOPED_TRACE(absl::StrCat("rank ", failing));
    std::atomic<bool> fail{false};
    const auto group = MakeGroup(3, [&](int rank, int layer) {
      return fail && rank == failing && layer == 1 ? absl::DataLossError("told to")
                                                   : absl::OkStatus();
    });
    const SequenceStep step = OneStep();
    EXPECT_TRUE(group->Step({&step, 1}, {}).ok());
    EXPECT_TRUE(group->status().ok());
    fail = true;

    const absl::Status status = group->Step({&step, 1}, {});

    fail = false;
    EXPECT_EQ(status,
              absl::DataLossError(absl::StrCat("tensor-parallel rank ", failing, ": told to")));
    EXPECT_EQ(group->status(), status);
    EXPECT_EQ(group->Step({&step, 1}, {}), status);
  }
}

TEST(RankGroupTest, SurvivesAStepThatIsRefused) {
  const auto group = MakeGroup(2, [](int, int) { return absl::OkStatus(); });
  const std::vector<std::int32_t> wrong = {1 << 20};
  const SequenceStep bad{.tokens = wrong, .block_table = kBlocks};
  const SequenceStep good = OneStep();

  EXPECT_EQ(group->Step({&bad, 1}, {}).code(), absl::StatusCode::kInvalidArgument);

  EXPECT_TRUE(group->status().ok());
  EXPECT_TRUE(group->Step({&good, 1}, {}).ok());
}

TEST(RankGroupTest, NamesTheRankThatDoesNotLoad) {
  const auto group = RankGroup::Load({.communicators = {nullptr, nullptr}},
                                     [](int rank) -> absl::StatusOr<std::unique_ptr<ModelRunner>> {
                                       if (rank == 1)
                                         return absl::ResourceExhaustedError("no memory");
                                       return std::unique_ptr<ModelRunner>();
                                     });

  EXPECT_EQ(group.status(), absl::ResourceExhaustedError("tensor-parallel rank 1: no memory"));
}

TEST(CoreAffinityTest, DealsOutNeighboursOrNothing) {
  const std::vector<int> cores = {0, 1, 2, 3, 8, 9, 10};

  EXPECT_EQ(DealOutCores(cores, 2, 3), (std::vector<std::vector<int>>{{0, 1, 2, 3}, {8, 9, 10}}));
  EXPECT_TRUE(DealOutCores(cores, 2, 4).empty());
}

TEST(CoreAffinityTest, BindsTheThreadAndThoseItStarts) {
  const std::vector<int> cores = AllowedCores();
  ASSERT_FALSE(cores.empty());
  std::vector<int> seen;
  std::thread([&] {
    ASSERT_TRUE(BindThread({&cores.back(), 1}));
    std::thread([&] { seen = AllowedCores(); }).join();
  }).join();
  EXPECT_EQ(seen, std::vector<int>{cores.back()});
}

}  // namespace
}  // namespace baton::engine
