#include "engine/ops/cuda/rank_link.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/device_buffer.h"
#include "tests/unit/engine/ops/cuda/rank_threads.h"

// What ranks exchange, against plain sums and copies on the host.
namespace baton::engine::cuda {
namespace {

constexpr int kRows = 5, kHidden = 64, kVocab = 131;

ModelPlan Plan() {
  ModelPlan plan;
  plan.hidden_size = kHidden;
  plan.vocab_size = kVocab;
  return plan;
}

std::vector<float> RandomFloats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void CopyIn(const std::vector<float>& from, float* to, cudaStream_t stream) {
  EXPECT_EQ(
      cudaMemcpyAsync(to, from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice, stream),
      cudaSuccess);
}

std::vector<float> CopyOut(const float* from, std::size_t count, cudaStream_t stream) {
  std::vector<float> values(count);
  EXPECT_EQ(
      cudaMemcpyAsync(values.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost, stream),
      cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  return values;
}

class RankLinkTest : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sums, RankLinkTest, ::testing::Values(0, kOneShotBytes),
                         [](const auto& tested) { return tested.param == 0 ? "Nccl" : "OneShot"; });

TEST_P(RankLinkTest, AddsThePartsOfAllRanksInRankOrder) {
  constexpr int kCount = kRows * kHidden;
  for (const int world_size : {2, 3, 4}) {
    SCOPED_TRACE(absl::StrCat(world_size, " ranks"));
    const std::vector<float> before = RandomFloats(kCount, 99);
    std::vector<float> expected = before;
    for (int i = 0; i < kCount; ++i) {
      float sum = 0;
      for (int rank = 0; rank < world_size; ++rank) sum += RandomFloats(kCount, rank)[i];
      expected[i] += sum;
    }
    const auto statuses =
        RunAll(MakeRanks({.world_size = world_size}),
               [&](NcclCommunicator& own, cudaStream_t stream) -> absl::Status {
                 auto link = RankLink::Create(
                     Plan(), own.rank(), world_size, &own,
                     {.max_rows = 8, .max_samples = 8, .one_shot_bytes = GetParam()});
                 if (!link.ok()) return link.status();
                 auto x = gpu::DeviceBuffer::Create(kCount * sizeof(float));
                 CopyIn(before, x->as<float>(), stream);
                 CopyIn(RandomFloats(kCount, own.rank()), link->Part(kRows), stream);
                 const absl::Status status = link->AddParts({}, kRows, x->as<float>(), stream);
                 EXPECT_EQ(CopyOut(x->as<float>(), kCount, stream), expected);
                 return status;
               });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_P(RankLinkTest, PutsLogitsSideBySideOnRankZero) {
  for (const int world_size : {2, 3, 4}) {
    SCOPED_TRACE(absl::StrCat(world_size, " ranks"));
    const std::vector<float> expected = RandomFloats(kRows * kVocab, 7);
    const auto statuses = RunAll(
        MakeRanks({.world_size = world_size}),
        [&](NcclCommunicator& own, cudaStream_t stream) -> absl::Status {
          auto link =
              RankLink::Create(Plan(), own.rank(), world_size, &own,
                               {.max_rows = 8, .max_samples = 8, .one_shot_bytes = GetParam()});
          if (!link.ok()) return link.status();
          const auto shard = MakeShard(Plan(), world_size, own.rank());
          std::vector<float> mine(static_cast<std::size_t>(kRows) * link->logits_stride(), -1);
          for (int row = 0; row < kRows; ++row) {
            for (int i = shard->vocab.begin; i < shard->vocab.end; ++i) {
              mine[row * link->logits_stride() + i - shard->vocab.begin] =
                  expected[row * kVocab + i];
            }
          }
          auto logits = gpu::DeviceBuffer::Create(expected.size() * sizeof(float));
          CopyIn(mine, link->OwnLogits(kRows), stream);
          const absl::Status status = link->GatherLogits(kRows, logits->as<float>(), stream);
          EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
          if (own.rank() == 0) {
            EXPECT_EQ(CopyOut(logits->as<float>(), expected.size(), stream), expected);
          }
          return status;
        });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

}  // namespace
}  // namespace baton::engine::cuda
