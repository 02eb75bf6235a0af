#include "engine/ops/cuda/kernels/experts.h"

#include <numeric>

#include "engine/ops/reference/experts.h"
#include "tests/support/cuda_test.h"
#include "tests/support/kernel_values.h"

namespace baton::engine::cuda {
namespace {

// Rows, some of them filling, with router logits, many of them equal.
struct Routing {
  ExpertsShape shape;
  std::vector<float> logits;
  std::vector<int> row_sequence;

  Routing(int num_rows, int num_experts, int experts_per_row, std::mt19937& random)
      : shape{num_rows, num_experts, experts_per_row},
        logits(testing::NormalFloats(static_cast<std::size_t>(num_rows) * num_experts, random, 2)),
        row_sequence(num_rows) {
    for (float& logit : logits) {
      if (random() % 3 == 0) logit = 0.5f * static_cast<float>(random() % 8);
    }
    for (int& sequence : row_sequence) sequence = random() % 5 == 0 ? -1 : 0;
  }
  std::vector<reference::ExpertShare> Want(int row, bool normalize) const {
    if (row_sequence[row] < 0) return {};
    const std::size_t begin = static_cast<std::size_t>(row) * shape.num_experts;
    return reference::ChooseExperts(
        {logits.data() + begin, static_cast<std::size_t>(shape.num_experts)}, shape.experts_per_row,
        normalize);
  }
};

class ExpertsTest : public testing::CudaTest {
 protected:
  struct Buffers {
    gpu::DeviceBuffer experts, weights, offsets, place_rows, place_experts, pair_places;
    ExpertChoice choice() const { return {experts.as<int>(), weights.as<float>()}; }
    ExpertGroups groups() const {
      return {offsets.as<int>(), place_rows.as<int>(), place_experts.as<int>(),
              pair_places.as<int>()};
    }
  };
  Buffers MakeBuffers(const ExpertsShape& shape) {
    const std::size_t bytes = shape.num_pairs() * sizeof(int);
    return {OnDevice(bytes), OnDevice(bytes), OnDevice((shape.num_experts + 1) * sizeof(int)),
            OnDevice(bytes), OnDevice(bytes), OnDevice(bytes)};
  }
  void Choose(const Routing& routing, bool normalize, const Buffers& buffers) {
    const auto logits = ToDevice(routing.logits);
    const auto row_sequence = ToDevice(routing.row_sequence);
    testing::ExpectCuda(cuda::ChooseExperts(routing.shape, logits.as<float>(),
                                            row_sequence.as<int>(), normalize, buffers.choice(),
                                            stream()));
    testing::ExpectCuda(cudaStreamSynchronize(stream()));
  }
  void Group(const ExpertsShape& shape, const Buffers& buffers) {
    testing::ExpectCuda(
        GroupByExpert(shape, buffers.experts.as<int>(), buffers.groups(), stream()));
  }
};

TEST_F(ExpertsTest, ChoosesAndWeighsAsTheReferenceDoes) {
  std::mt19937 random(10);
  for (const auto& [experts, per_row] :
       {std::pair{8, 2}, {4, 4}, {60, 4}, {128, 8}, {257, 9}, {1, 1}, {64, 32}}) {
    for (const bool normalize : {true, false}) {
      SCOPED_TRACE(::testing::Message() << per_row << " of " << experts << ", " << normalize);
      const Routing routing(37, experts, per_row, random);
      const Buffers buffers = MakeBuffers(routing.shape);

      Choose(routing, normalize, buffers);

      const auto chosen = ToHost<int>(buffers.experts, routing.shape.num_pairs());
      const auto weights = ToHost<float>(buffers.weights, routing.shape.num_pairs());
      for (int row = 0; row < routing.shape.num_rows; ++row) {
        const auto want = routing.Want(row, normalize);
        for (int j = 0; j < per_row; ++j) {
          ASSERT_EQ(chosen[row * per_row + j], want.empty() ? -1 : want[j].expert);
          ASSERT_NEAR(weights[row * per_row + j], want.empty() ? 0.0f : want[j].weight, 1e-7);
        }
      }
    }
  }
}

TEST_F(ExpertsTest, NotANumberIsTheLowestLogit) {
  std::mt19937 random(11);
  Routing routing(1, 4, 2, random);
  routing.row_sequence = {0};
  routing.logits = {NAN, -INFINITY, 3.0f, NAN};
  const Buffers buffers = MakeBuffers(routing.shape);

  Choose(routing, true, buffers);

  EXPECT_EQ(ToHost<int>(buffers.experts, 2), (std::vector<int>{1, 2}));
  EXPECT_EQ(ToHost<float>(buffers.weights, 2), (std::vector<float>{0.0f, 1.0f}));
}

TEST_F(ExpertsTest, GroupsPairsByExpertInRowOrder) {
  std::mt19937 random(12);
  for (const auto& [rows, experts, per_row] :
       {std::tuple{1, 8, 2}, {33, 8, 2}, {128, 64, 8}, {400, 16, 4}, {700, 5, 3}, {0, 8, 2}}) {
    SCOPED_TRACE(::testing::Message() << rows << " rows, " << per_row << " of " << experts);
    const Routing routing(rows, experts, per_row, random);
    const int num_pairs = routing.shape.num_pairs();
    std::vector<int> want_offsets(experts + 1), want_rows, want_experts;
    std::vector<int> want_places(num_pairs, -1);
    for (int expert = 0; expert < experts; ++expert) {
      want_offsets[expert] = static_cast<int>(want_rows.size());
      for (int row = 0; row < rows; ++row) {
        const auto shares = routing.Want(row, true);
        for (std::size_t j = 0; j < shares.size(); ++j) {
          if (shares[j].expert != expert) continue;
          want_places[row * per_row + j] = static_cast<int>(want_rows.size());
          want_rows.push_back(row);
          want_experts.push_back(expert);
        }
      }
    }
    want_offsets[experts] = static_cast<int>(want_rows.size());
    want_rows.resize(num_pairs, 0);
    want_experts.resize(num_pairs, -1);

    testing::UnderSeveralSchedules([&] {
      const Buffers buffers = MakeBuffers(routing.shape);
      Choose(routing, true, buffers);
      Group(routing.shape, buffers);

      EXPECT_EQ(ToHost<int>(buffers.offsets, experts + 1), want_offsets);
      EXPECT_EQ(ToHost<int>(buffers.place_rows, num_pairs), want_rows);
      EXPECT_EQ(ToHost<int>(buffers.place_experts, num_pairs), want_experts);
      EXPECT_EQ(ToHost<int>(buffers.pair_places, num_pairs), want_places);
    });
  }
}

template <class T>
class ExpertRowsTest : public ExpertsTest {};
TYPED_TEST_SUITE(ExpertRowsTest, testing::KernelTypes);

// Property: with experts that give their own row times (expert + 1), the mixture is known.
TYPED_TEST(ExpertRowsTest, WhatIsGatheredComesBackAsTheWeightedSum) {
  using T = TypeParam;
  std::mt19937 random(13);
  for (const bool add : {false, true}) {
    constexpr int kColumns = 1048;
    const Routing routing(21, 8, 3, random);
    const ExpertsShape& shape = routing.shape;
    const auto n = testing::RoundAll<T>(testing::NormalFloats(shape.num_rows * kColumns, random));
    const auto bias = testing::NormalFloats(shape.num_experts * kColumns, random);
    const auto d_n = this->ToDevice(n);
    const auto d_bias = this->ToDevice(bias);
    const auto buffers = this->MakeBuffers(shape);
    this->Choose(routing, true, buffers);
    this->Group(shape, buffers);
    const std::size_t packed_count = static_cast<std::size_t>(shape.num_pairs()) * kColumns;
    const auto packed = this->ToDevice(std::vector<T>(packed_count, testing::RoundTo<T>(NAN)));

    testing::ExpectCuda(GatherForExperts(shape, buffers.groups(), d_n.template as<T>(), kColumns,
                                         packed.template as<T>(), this->stream()));
    auto given = this->template ToHost<T>(packed, packed_count);
    const auto places = this->template ToHost<int>(buffers.place_experts, shape.num_pairs());
    for (std::size_t i = 0; i < packed_count; ++i) {
      const float factor = static_cast<float>(places[i / kColumns] + 1);
      given[i] = testing::RoundTo<T>(testing::FloatOf(given[i]) * factor);
    }
    const auto d_given = this->ToDevice(given);
    const auto y = this->ToDevice(std::vector<float>(shape.num_rows * kColumns, 5.0f));
    testing::ExpectCuda(CombineExperts(
        shape, buffers.choice(), buffers.pair_places.template as<int>(), d_given.template as<T>(),
        kColumns, {.add = add, .bias = d_bias.template as<float>()}, y.template as<float>(),
        this->stream()));

    const auto got = this->template ToHost<float>(y, shape.num_rows * kColumns);
    for (int row = 0; row < shape.num_rows; ++row) {
      const auto shares = routing.Want(row, true);
      for (int i = 0; i < kColumns; ++i) {
        double want = add ? 5.0 : 0.0;
        for (const auto& [expert, weight] : shares) {
          const float factor = static_cast<float>(expert + 1);
          const T from = testing::RoundTo<T>(testing::FloatOf(n[row * kColumns + i]) * factor);
          want += weight * (double{testing::FloatOf(from)} + bias[expert * kColumns + i]);
        }
        ASSERT_NEAR(got[row * kColumns + i], want, 1e-5) << "row " << row << ", column " << i;
      }
    }
  }
}

TYPED_TEST(ExpertRowsTest, PairsMayLieAtTheirOwnNumbers) {
  using T = TypeParam;
  std::mt19937 random(14);
  constexpr int kColumns = 16;
  const Routing routing(9, 4, 2, random);
  const auto buffers = this->MakeBuffers(routing.shape);
  this->Choose(routing, false, buffers);
  const auto given =
      testing::RoundAll<T>(testing::NormalFloats(routing.shape.num_pairs() * kColumns, random));
  const auto d_given = this->ToDevice(given);
  const auto y = this->OnDevice(routing.shape.num_rows * kColumns * sizeof(float));

  testing::ExpectCuda(CombineExperts(routing.shape, buffers.choice(), nullptr,
                                     d_given.template as<T>(), kColumns, {}, y.template as<float>(),
                                     this->stream()));

  const auto got = this->template ToHost<float>(y, routing.shape.num_rows * kColumns);
  for (int row = 0; row < routing.shape.num_rows; ++row) {
    const auto shares = routing.Want(row, false);
    for (int i = 0; i < kColumns; ++i) {
      double want = 0;
      for (std::size_t j = 0; j < shares.size(); ++j) {
        want += double{shares[j].weight} * testing::FloatOf(given[(row * 2 + j) * kColumns + i]);
      }
      EXPECT_NEAR(got[row * kColumns + i], want, 1e-6);
    }
  }
}

TEST_F(ExpertsTest, RefusesShapesItCannotCompute) {
  const ExpertChoice choice{};
  for (const ExpertsShape& shape :
       {ExpertsShape{1, 4, 5}, {1, 2000, 2}, {1, 64, 33}, {-1, 4, 2}, {1, 0, 0}}) {
    EXPECT_EQ(cuda::ChooseExperts(shape, nullptr, nullptr, true, choice, stream()),
              cudaErrorInvalidValue);
    EXPECT_EQ(GroupByExpert(shape, nullptr, {}, stream()), cudaErrorInvalidValue);
  }
}

}  // namespace
}  // namespace baton::engine::cuda
