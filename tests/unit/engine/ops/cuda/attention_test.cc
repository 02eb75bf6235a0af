#include "engine/ops/cuda/kernels/attention.h"

#include <string>

#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "tests/unit/engine/ops/cuda/attention_world.h"

namespace baton::engine::cuda {
namespace {

AttentionShape Shape(int heads, int kv_heads, int head_dim, int window = 0, float softcap = 0) {
  return {.num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = head_dim,
          .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
          .softcap = softcap,
          .window = window};
}

std::string Describe(const AttentionCase& c) {
  const auto& s = c.shape;
  return std::to_string(s.num_heads) + "/" + std::to_string(s.num_kv_heads) + " heads of " +
         std::to_string(s.head_dim) + ", block " + std::to_string(c.block_size) + ", window " +
         std::to_string(s.window) + ", cap " + std::to_string(s.softcap);
}

template <class T>
class CudaAttentionTest : public AttentionWorld<T> {};
using Types = ::testing::Types<__nv_bfloat16, __half>;
TYPED_TEST_SUITE(CudaAttentionTest, Types);

TYPED_TEST(CudaAttentionTest, EqualsPlainLoopsOnRandomRaggedBatches) {
  const AttentionCase cases[] = {
      {Shape(4, 2, 16), 16},        {Shape(9, 3, 64), 16},        {Shape(2, 2, 24, 7), 32},
      {Shape(8, 1, 32, 20), 16},    {Shape(4, 1, 128), 64},       {Shape(6, 2, 96, 40), 32},
      {Shape(4, 2, 256, 0, 5), 16}, {Shape(3, 1, 40, 0, 20), 64}, {Shape(20, 1, 8), 16},
      {Shape(2, 1, 200, 33), 32},   {Shape(4, 4, 64, 1), 16},
  };
  std::mt19937 random(3);
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(Describe(c));
    std::vector<int> lengths;
    std::vector<Chunk> chunks;
    for (int sequence = 0; sequence < 4; ++sequence) {
      const int rows = sequence % 2 == 0 ? 1 + random() % 3 : 1 + random() % 80;
      const int start = sequence == 3 ? 0 : random() % 100;
      lengths.push_back(start + rows);
      chunks.push_back({sequence, start, rows});
    }
    this->MakeSequences(c, lengths, random());

    const auto rows =
        this->Step(chunks, {.seed = static_cast<unsigned>(random()), .filling_rows = 3});

    this->ExpectEqualsReference(rows);
  }
}

TYPED_TEST(CudaAttentionTest, EqualsPlainLoopsOverManySplits) {
  const AttentionCase cases[] = {{Shape(4, 2, 32), 16}, {Shape(2, 1, 64, 700), 32}};
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(Describe(c));
    this->MakeSequences(c, {1700, 1030, 513, 512}, 5);

    const auto rows = this->Step({{0, 1699, 1}, {1, 990, 40}, {2, 511, 2}, {3, 511, 1}},
                                 {.filling_sequences = 2});

    this->ExpectEqualsReference(rows);
  }
}

// Splits grow after 8192 and 24576 positions.
TYPED_TEST(CudaAttentionTest, FarRowsOfBothKernelsAreRightAndAlike) {
  for (const int window : {0, 9000}) {
    SCOPED_TRACE(window);
    this->MakeSequences({Shape(1, 1, 8, window), 64}, {26000}, 6);

    const auto decoded = this->Step({{0, 25999, 1}}, {.filling_rows = 1});
    const auto prefilled = this->Step({{0, 25930, 70}});

    this->ExpectEqualsReference(decoded);
    this->ExpectSameBits(decoded, prefilled);
  }
}

// Property: decoded one at a time, in chunks of any cut, alone or beside others, with other blocks,
// other filling and other limits, a row has the same bits.
TYPED_TEST(CudaAttentionTest, BitsOfARowDoNotDependOnBatchChunksOrKernel) {
  const AttentionCase cases[] = {
      {Shape(4, 2, 32), 16},        {Shape(9, 3, 64, 0, 30), 16}, {Shape(2, 1, 96, 600), 32},
      {Shape(1, 1, 128, 0, 0), 64}, {Shape(2, 1, 256), 16},       {Shape(3, 1, 24, 50), 16},
  };
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(Describe(c));
    this->MakeSequences(c, {1100, 90}, 7);
    const auto whole = this->Step({{0, 1000, 100}, {1, 0, 90}});

    Rows<TypeParam> one_by_one;
    for (const int position : {1000, 1001, 1023, 1024, 1025, 1060, 1099}) {
      one_by_one.merge(this->Step({{0, position, 1}}, {.seed = 9, .max_positions = 4000}));
    }
    Rows<TypeParam> pieces = this->Step({{1, 0, 5}, {0, 1000, 3}}, {.filling_sequences = 3});
    pieces.merge(this->Step({{0, 1003, 50}, {1, 5, 40}}, {.seed = 4, .max_rows = 300}));
    pieces.merge(this->Step({{1, 45, 45}, {0, 1053, 47}}, {.filling_rows = 5, .longest = 90}));

    this->ExpectEqualsReference(one_by_one);
    this->ExpectSameBits(one_by_one, whole);
    this->ExpectSameBits(pieces, whole);
  }
}

// A whole prompt at once, and the rows that decoding it again would compute.
TYPED_TEST(CudaAttentionTest, PrefillOverSplitsEqualsDecoding) {
  this->MakeSequences({Shape(2, 1, 32), 16}, {1200}, 8);

  const auto whole = this->Step({{0, 0, 1200}});

  for (const int position : {0, 15, 63, 64, 511, 512, 575, 576, 1023, 1024, 1199}) {
    this->ExpectSameBits(this->Step({{0, position, 1}}), whole);
  }
}

TYPED_TEST(CudaAttentionTest, RowsBeyondTheWorkspaceAreRightAllTheSame) {
  this->MakeSequences({Shape(1, 1, 16), 16}, {530}, 10);
  const auto alone = this->Step({{0, 529, 1}});
  std::vector<Chunk> chunks(300, Chunk{0, 529, 1});

  const auto rows = this->Step(chunks);

  this->ExpectSameBits(alone, rows);  // the last of them
}

// More sequences than a warp, and than the planning block, has threads; every kind of item.
TYPED_TEST(CudaAttentionTest, PlansManySequences) {
  this->MakeSequences({Shape(1, 1, 8), 16}, {40, 25, 530, 33}, 15);
  std::vector<Chunk> chunks;
  for (int i = 0; i < 150; ++i) {
    const int rows = i % 3 == 0 ? 18 + i % 5 : 1 + i % 2, sequence = i % 30 == 7 ? 2 : i % 2;
    const int length = static_cast<int>(this->sequences_[sequence].k.size()) / 8;
    chunks.push_back({sequence, length - rows - (sequence == 2 ? 0 : i % 3), rows});
  }

  const auto rows = this->Step(chunks, {.filling_sequences = 1});

  this->ExpectEqualsReference(rows);
}

TYPED_TEST(CudaAttentionTest, ValuesThatARowDoesNotSeeHaveNoEffect) {
  for (const int window : {0, 30}) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      this->MakeSequences({Shape(4, 2, 32, window), 16}, {120}, 11);
      // Rows of one tile on both sides of the spoilt position, in either kernel.
      const std::vector<Chunk> prefill{{0, 40, 80}}, decode{{0, 68, 5}};
      const auto clean = this->Step(prefill);
      this->SetValue(0, 70, bad);

      for (const auto& chunks : {prefill, decode}) {
        for (const auto& [key, row] : this->Step(chunks)) {
          const int position = key.second;
          const bool sees = position >= 70 && (window == 0 || position < 70 + window);
          if (sees) {
            EXPECT_FALSE(std::isfinite(this->ToFloat(row[0]))) << position;
          } else {
            this->ExpectSameBits({{key, row}}, clean);
          }
        }
      }
    }
  }
}

// One block of each kernel walks over all items of its KV head. Some splits are an odd number of
// tiles long: their last tile lies where the next item's first one goes.
TYPED_TEST(CudaAttentionTest, NumberOfBlocksChangesNoBit) {
  this->MakeSequences({Shape(4, 2, 32), 16}, {1070, 300, 560}, 14);
  const std::vector<Chunk> chunks{{0, 1060, 10}, {1, 120, 180}, {2, 558, 2}, {0, 970, 90}};
  const auto expected = this->Step(chunks);
  const typename AttentionWorld<TypeParam>::DeviceStep step(*this, chunks, {.filling_rows = 1});
  const KvView<TypeParam> kv{step.kv.template as<TypeParam>(), 2, 32, 16};
  AttentionArguments<TypeParam> arguments;
  testing::ExpectCuda(MakeAttentionArguments(
      step.batch, this->case_.shape, step.limits, step.plan.data(), step.q.template as<TypeParam>(),
      kv, step.workspace.data(), step.out.template as<TypeParam>(), &arguments));

  testing::ExpectCuda(
      PlanAttention(step.batch, this->case_.shape, step.limits, step.plan.data(), this->stream()));
  testing::ExpectCuda(LaunchPrefillAttention<TypeParam, 32>(arguments, 1, this->stream()));
  testing::ExpectCuda(LaunchDecodeAttention<TypeParam, 32>(arguments, 1, this->stream()));
  testing::ExpectCuda(LaunchMergeAttention(arguments, 1, this->stream()));

  this->ExpectSameBits(this->Outputs(step, chunks), expected);
}

using CudaAttentionGraphTest = AttentionWorld<__nv_bfloat16>;

// A graph captured for a bucket of rows follows what the buffers hold when it is replayed.
TEST_F(CudaAttentionGraphTest, ReplaysWithOtherContents) {
  MakeSequences({Shape(4, 2, 32), 16}, {800, 700, 10}, 12);
  const std::vector<Chunk> first{{0, 799, 1}, {1, 699, 1}}, second{{1, 520, 1}, {2, 9, 1}};
  const StepLayout layout{.filling_rows = 2, .filling_sequences = 2, .max_positions = 2000};
  const DeviceStep step(*this, first, layout), other(*this, second, layout);
  const auto expected = Step(second);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  testing::ExpectCuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  testing::ExpectCuda(
      PlanAttention(step.batch, case_.shape, step.limits, step.plan.data(), stream()));
  testing::ExpectCuda(Attention(step));
  testing::ExpectCuda(cudaStreamEndCapture(stream(), &graph));
  testing::ExpectCuda(cudaGraphInstantiate(&executable, graph, 0));
  testing::ExpectCuda(cudaGraphLaunch(executable, stream()));
  ExpectEqualsReference(Outputs(step, first));

  const auto copy = [&](const gpu::DeviceBuffer& from, const gpu::DeviceBuffer& to,
                        std::size_t bytes) {
    testing::ExpectCuda(
        cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream()));
  };
  const int num_sequences = step.batch.num_sequences, max_blocks = other.batch.max_blocks;
  ASSERT_LE(max_blocks, step.batch.max_blocks);
  copy(other.q, step.q, step.batch.num_rows * 4 * 32 * 2);
  copy(other.kv, step.kv, other.kv.bytes());
  copy(other.sequences, step.sequences, num_sequences * sizeof(SequenceRows));
  for (int i = 0; i < num_sequences; ++i) {
    testing::ExpectCuda(cudaMemcpyAsync(
        step.tables.as<int>() + i * step.batch.max_blocks, other.tables.as<int>() + i * max_blocks,
        max_blocks * sizeof(int), cudaMemcpyDeviceToDevice, stream()));
  }
  testing::ExpectCuda(cudaGraphLaunch(executable, stream()));
  const auto size = static_cast<std::size_t>(step.batch.num_rows) * 4 * 32;
  const auto out = ToHost<__nv_bfloat16>(step.out, size);

  testing::ExpectCuda(cudaGraphExecDestroy(executable));
  testing::ExpectCuda(cudaGraphDestroy(graph));
  for (std::size_t i = 0; i < second.size(); ++i) {
    const auto row = out.begin() + i * 4 * 32;
    ExpectSameBits({{{second[i].sequence, second[i].start}, {row, row + 4 * 32}}}, expected);
  }
}

TEST_F(CudaAttentionGraphTest, RefusesWhatItCannotCompute) {
  MakeSequences({Shape(2, 1, 16), 16}, {20}, 13);
  const DeviceStep step(*this, {{0, 0, 20}}, {});
  const auto refused = [&](const AttentionShape& shape, int block_size) {
    case_ = {shape, block_size};
    return Attention(step) == cudaErrorInvalidValue;
  };

  EXPECT_TRUE(refused(Shape(2, 1, 12), 16));
  EXPECT_TRUE(refused(Shape(2, 1, 264), 16));
  EXPECT_TRUE(refused(Shape(3, 2, 16), 16));
  EXPECT_TRUE(refused(Shape(2, 1, 16), 8));
  EXPECT_TRUE(refused(Shape(2, 1, 16, -1), 16));
  EXPECT_TRUE(refused(Shape(2, 1, 16, 0, -1), 16));
  DeviceBatch larger = step.batch;
  larger.num_rows = step.limits.max_rows + 1;
  EXPECT_EQ(PlanAttention(larger, Shape(2, 1, 16), step.limits, step.plan.data(), stream()),
            cudaErrorInvalidValue);
  EXPECT_EQ(AttentionPlanBytes(Shape(2, 1, 12), step.limits), 0u);
  EXPECT_EQ(AttentionWorkspaceBytes(Shape(2, 1, 12), step.limits), 0u);
}

}  // namespace
}  // namespace baton::engine::cuda
