#include "engine/ops/cuda/kernels/embed.h"

#include "tests/support/cuda_test.h"
#include "tests/support/kernel_values.h"

namespace baton::engine::cuda {
namespace {

template <class T>
class EmbedTest : public testing::CudaTest {};
TYPED_TEST_SUITE(EmbedTest, testing::KernelTypes);

TYPED_TEST(EmbedTest, LooksUpScaledRowsOfTheSliceAndLeavesFillingRows) {
  using T = TypeParam;
  std::mt19937 random(1);
  for (const int hidden : {8, 64, 576, 2048}) {
    SCOPED_TRACE(hidden);
    constexpr int kVocab = 50, kRows = 23;
    const VocabularySlice slice{.begin = 10, .end = 40};
    const std::vector<T> table = testing::RoundAll<T>(
        testing::NormalFloats(static_cast<std::size_t>(slice.end - slice.begin) * hidden, random));
    std::vector<int> tokens(kRows), row_sequence(kRows);
    for (int row = 0; row < kRows; ++row) {
      tokens[row] = static_cast<int>(random() % kVocab);
      row_sequence[row] = random() % 4 == 0 ? -1 : row;
    }
    tokens[0] = slice.begin, tokens[1] = slice.end - 1, tokens[2] = slice.end;
    const auto device_table = this->ToDevice(table);
    const auto device_tokens = this->ToDevice(tokens);
    const auto device_sequence = this->ToDevice(row_sequence);
    const auto x = this->ToDevice(std::vector<float>(static_cast<std::size_t>(kRows) * hidden, 7));
    const DeviceBatch batch{.tokens = device_tokens.template as<int>(),
                            .positions = nullptr,
                            .row_sequence = device_sequence.template as<int>(),
                            .sequences = nullptr,
                            .block_tables = nullptr,
                            .max_blocks = 0,
                            .num_rows = kRows,
                            .num_sequences = 0};

    testing::ExpectCuda(Embed(batch, device_table.template as<T>(), slice, 1.5f, hidden,
                              x.template as<float>(), this->stream()));

    const auto got = this->template ToHost<float>(x, static_cast<std::size_t>(kRows) * hidden);
    for (int row = 0; row < kRows; ++row) {
      const bool inside = tokens[row] >= slice.begin && tokens[row] < slice.end;
      for (int i = 0; i < hidden; ++i) {
        float want = 0.0f;
        if (inside) {
          want = 1.5f * testing::FloatOf(table[(tokens[row] - slice.begin) * hidden + i]);
        }
        if (row_sequence[row] < 0) want = 7.0f;
        ASSERT_EQ(got[row * hidden + i], want) << "row " << row << ", column " << i;
      }
    }
  }
}

TYPED_TEST(EmbedTest, RefusesShapesItCannotCompute) {
  using T = TypeParam;
  DeviceBatch batch{};
  batch.num_rows = 1;
  const T* table = nullptr;
  float* x = nullptr;
  EXPECT_EQ(Embed(batch, table, {0, 4}, 1.0f, 12, x, this->stream()), cudaErrorInvalidValue);
  EXPECT_EQ(Embed(batch, table, {4, 0}, 1.0f, 16, x, this->stream()), cudaErrorInvalidValue);
  batch.num_rows = 0;
  EXPECT_EQ(Embed(batch, table, {0, 4}, 1.0f, 16, x, this->stream()), cudaSuccess);
}

}  // namespace
}  // namespace baton::engine::cuda
