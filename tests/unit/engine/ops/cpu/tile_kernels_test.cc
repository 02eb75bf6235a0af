// Matrix product kernels against sums in double, on every instruction set of this processor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/ops/cpu/aligned_buffer.h"
#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/matmul.h"
#include "tests/support/random_matrix.h"
#include "tests/unit/engine/ops/cpu/targets.h"

namespace baton::engine::cpu {
namespace {

using checkpoint::DType;
using testing::AllDTypes;
using testing::RandomMatrix;

// Rows of activations in both forms.
struct Rows {
  Rows(int num_rows, int columns, std::mt19937& random) {
    std::normal_distribution<float> value;
    floats.resize(static_cast<std::size_t>(num_rows) * columns);
    for (float& x : floats) x = value(random);
    // Now and then an outlier, as models have them.
    for (int i = 0; i < num_rows; ++i) floats[i * columns + random() % columns] *= 50.0f;
    view = {.floats = floats.data(),
            .stride = static_cast<std::size_t>(columns),
            .groups = static_cast<std::size_t>(columns) / kGroup,
            .num_rows = num_rows};
    if (columns % kGroup == 0) {
      groups.resize(num_rows * view.groups);
      for (int i = 0; i < num_rows; ++i) {
        QuantizeRow(floats.data() + i * columns, columns, groups.data() + i * view.groups);
      }
      view.quantized = groups.data();
    }
  }
  // What the integer kernel sees of row `row`.
  std::vector<float> Dequantized(int row) const {
    std::vector<float> values;
    for (std::size_t g = 0; g < view.groups; ++g) {
      const QuantizedGroup& group = groups[row * view.groups + g];
      for (int i = 0; i < kGroup; ++i) {
        values.push_back(group.scale *
                         static_cast<float>(128 * group.values[0][i] + group.values[1][i]));
      }
    }
    return values;
  }
  std::vector<float> floats;
  std::vector<QuantizedGroup> groups;
  Activations view;
};

// out[row][output] by the kernels, tile by tile.
std::vector<std::vector<float>> Multiply(const PackedMatrix& weights, const Activations& x,
                                         bool integer, int first_row, int num_rows) {
  std::vector<std::vector<float>> out(num_rows, std::vector<float>(weights.rows()));
  AlignedBuffer<float> block(static_cast<std::size_t>(num_rows) * kTileRows);
  for (int tile = 0; tile < weights.num_tiles(); ++tile) {
    (integer ? IntegerTile : FloatTile)(weights, tile, x, first_row, num_rows, block.data());
    for (int i = 0; i < num_rows; ++i) {
      const int end = std::min(kTileRows, weights.rows() - tile * kTileRows);
      std::copy_n(block.data() + i * kTileRows, end, out[i].begin() + tile * kTileRows);
    }
  }
  return out;
}

void ExpectProducts(const RandomMatrix& matrix, const Rows& rows, bool integer,
                    const std::vector<std::vector<float>>& products) {
  for (int i = 0; i < rows.view.num_rows; ++i) {
    const std::size_t columns = matrix.tensor().columns();
    const std::vector<float> x = integer
                                     ? rows.Dequantized(i)
                                     : std::vector<float>(rows.floats.begin() + i * columns,
                                                          rows.floats.begin() + (i + 1) * columns);
    for (int output = 0; output < matrix.tensor().rows(); ++output) {
      const std::vector<float> w = matrix.Row(output);
      double sum = 0;
      double size = 0;
      double largest = 0;
      for (std::size_t k = 0; k < columns; ++k) {
        sum += static_cast<double>(w[k]) * x[k];
        size += std::abs(x[k]);
        largest = std::max<double>(largest, std::abs(w[k]));
      }
      // A few roundings of 2^-24 for each of up to 512 / 32 partial sums.
      ASSERT_NEAR(products[i][output], sum, 2e-6 * size * (largest + 1e-3))
          << "row " << i << ", output " << output;
    }
  }
}

struct Shape {
  int rows, columns, num_rows;
};

std::vector<Shape> Shapes(DType dtype, std::mt19937& random) {
  const int block = checkpoint::BlockElements(dtype);
  const int columns = block == 1 ? 1 : block;
  std::vector<Shape> shapes = {{1, columns, 1}, {16, 2 * columns, 8}, {33, columns, 13}};
  for (int i = 0; i < 3; ++i) {
    const int scale = block == 1 ? static_cast<int>(1 + random() % 300)
                                 : static_cast<int>(1 + random() % (512 / block));
    shapes.push_back({static_cast<int>(1 + random() % 50), columns * scale,
                      static_cast<int>(1 + random() % 30)});
  }
  return shapes;
}

class TileKernelsTest : public ::testing::TestWithParam<DType> {
 protected:
  // Runs check(matrix, packed, rows, integer) for every target, shape and kernel that applies.
  template <class Check>
  void ForEach(const Check& check) {
    ThreadPool pool({.num_threads = 1});
    WeightMemory memory;
    for (const std::int64_t target : KernelTargets()) {
      const ScopedTarget scope(target);
      std::mt19937 random(7);
      for (const Shape& shape : Shapes(GetParam(), random)) {
        SCOPED_TRACE(absl::StrCat(shape.rows, " x ", shape.columns, ", rows ", shape.num_rows));
        const RandomMatrix matrix(GetParam(), shape.rows, shape.columns, random);
        auto packed = PackedMatrix::Pack(matrix.tensor(), pool, memory);
        ASSERT_TRUE(packed.ok()) << packed.status();
        const Rows rows(shape.num_rows, shape.columns, random);
        check(matrix, *packed, rows, false);
        if (TraitsOf(packed->format()).is_integer) check(matrix, *packed, rows, true);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(TileKernelsTest, ProductsAreThoseOfTheDequantizedNumbers) {
  ForEach(
      [](const RandomMatrix& matrix, const PackedMatrix& packed, const Rows& rows, bool integer) {
        const auto products = Multiply(packed, rows.view, integer, 0, rows.view.num_rows);
        ExpectProducts(matrix, rows, integer, products);
      });
}

// Property: a row alone has the bits it has among others.
TEST_P(TileKernelsTest, BitsDoNotDependOnTheOtherRows) {
  ForEach([](const RandomMatrix&, const PackedMatrix& packed, const Rows& rows, bool integer) {
    const auto together = Multiply(packed, rows.view, integer, 0, rows.view.num_rows);
    for (int i = 0; i < rows.view.num_rows; ++i) {
      ASSERT_EQ(Multiply(packed, rows.view, integer, i, 1)[0], together[i])
          << "row " << i << (integer ? ", integer kernel" : ", float kernel");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, TileKernelsTest, ::testing::ValuesIn(AllDTypes()),
                         [](const auto& tested) {
                           return std::string(checkpoint::DTypeName(tested.param));
                         });

// Property: MatMul hands every output to the sink exactly once, whatever the cut.
TEST(MatMulTest, CoversEveryOutputOnceWithTheSameBits) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    ThreadPool one({.num_threads = 1});
    ThreadPool many({.num_threads = 3, .spin = absl::ZeroDuration()});
    WeightMemory memory;
    const int columns = 32 * static_cast<int>(1 + random() % 4);
    const int num_rows = static_cast<int>(1 + random() % 300);
    const RandomMatrix a(DType::kQ4_1, 1 + random() % 90, columns, random);
    const RandomMatrix b(DType::kF16, 1 + random() % 90, columns, random);
    const PackedMatrix packed[] = {*PackedMatrix::Pack(a.tensor(), one, memory),
                                   *PackedMatrix::Pack(b.tensor(), many, memory)};
    const PackedMatrix* parts[] = {&packed[0], &packed[1]};
    const Rows rows(num_rows, columns, random);

    std::vector<float> out[2][2];  // [pool][part]
    for (int p = 0; p < 2; ++p) {
      std::vector<int> written[2];
      for (int part = 0; part < 2; ++part) {
        out[p][part].resize(static_cast<std::size_t>(num_rows) * packed[part].rows());
        written[part].resize(out[p][part].size());
      }
      MatMul(
          p == 0 ? one : many, rows.view, parts,
          [&](int part, int column, int num_columns, int first_row, int count, const float* block) {
            for (int i = 0; i < count; ++i) {
              for (int j = 0; j < num_columns; ++j) {
                const std::size_t at =
                    static_cast<std::size_t>(first_row + i) * packed[part].rows() + column + j;
                out[p][part][at] = block[i * kTileRows + j];
                ++written[part][at];
              }
            }
          });
      for (const auto& counts : written) {
        EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; }));
      }
    }

    EXPECT_EQ(out[0][0], out[1][0]);
    EXPECT_EQ(out[0][1], out[1][1]);
  }
}

TEST(PackedMatrixTest, RefusesATensorThatDoesNotFitItsData) {
  std::mt19937 random(1);
  ThreadPool pool({.num_threads = 1});
  WeightMemory memory;
  const RandomMatrix matrix(DType::kQ4_1, 4, 64, random);
  checkpoint::Tensor cut = matrix.tensor();
  cut.data = cut.data.first(cut.data.size() - 1);

  EXPECT_EQ(PackedMatrix::Pack(cut, pool, memory).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PackedMatrixTest, KeepsQuantizedWeightsAsSmallAsTheFile) {
  std::mt19937 random(1);
  ThreadPool pool({.num_threads = 1});
  WeightMemory memory;
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kIQ4_NL, DType::kInt4}) {
    const RandomMatrix matrix(dtype, 64, 512, random);
    EXPECT_EQ(PackedMatrix::Pack(matrix.tensor(), pool, memory)->bytes(),
              matrix.tensor().data.size())
        << checkpoint::DTypeName(dtype);
  }
}

TEST(PackedMatrixTest, NeverWidensAWeightToHalfPrecision) {
  std::mt19937 random(1);
  ThreadPool pool({.num_threads = 1});
  WeightMemory memory;
  for (const DType dtype : AllDTypes()) {
    if (checkpoint::BlockElements(dtype) == 1) continue;
    const RandomMatrix matrix(dtype, 64, 512, random);
    const double weights = 64 * 512;
    const double file_bits = 8.0 * static_cast<double>(matrix.tensor().data.size()) / weights;
    const auto packed = PackedMatrix::Pack(matrix.tensor(), pool, memory);
    const double bits = 8.0 * static_cast<double>(packed->bytes()) / weights;
    EXPECT_LE(bits, file_bits <= 5 ? 6 : 10) << checkpoint::DTypeName(dtype);
  }
}

}  // namespace
}  // namespace baton::engine::cpu
