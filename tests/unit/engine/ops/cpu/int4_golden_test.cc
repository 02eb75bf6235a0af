// Products with AWQ and GPTQ maps against those of tests/golden/quant/awq_gptq, summed in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/int4_repacking.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/safetensors_file.h"
#include "engine/ops/cpu/activation_buffer.h"
#include "engine/ops/cpu/matmul.h"
#include "engine/ops/cpu/ordered_input.h"
#include "engine/ops/reference/matmul.h"
#include "tests/support/test_paths.h"

namespace baton::engine::cpu {
namespace {

using checkpoint::MappedFile;
using checkpoint::StoredTensors;

std::vector<float> Floats(const checkpoint::StoredTensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

class Int4GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string folder = testing::GoldenDir() + "/quant/awq_gptq/" + GetParam();
    auto packed = MappedFile::Open(folder + "/model.safetensors");
    auto expected = MappedFile::Open(folder + "/expected.safetensors");
    const auto text = checkpoint::ReadTextFile(folder + "/config.json", 1 << 16);
    ASSERT_TRUE(packed.ok() && expected.ok() && text.ok()) << folder;
    packed_ = *std::move(packed);
    expected_ = *std::move(expected);
    const auto config = checkpoint::ReadQuantizationConfig(*checkpoint::JsonObject::Parse(*text));
    ASSERT_TRUE(config.ok()) << config.status();
    StoredTensors stored = *checkpoint::ParseSafetensors(packed_->bytes());
    const absl::Status status = checkpoint::RepackLinearMaps(**config, stored, memory_);
    ASSERT_TRUE(status.ok()) << status;
    const auto& weight = stored.at("linear.weight");
    weight_ = {.name = "linear.weight",
               .dtype = *weight.dtype,
               .shape = weight.shape,
               .data = weight.data,
               .column_order = weight.column_order};
    const StoredTensors golden = *checkpoint::ParseSafetensors(expected_->bytes());
    x_ = Floats(golden.at("x"));
    y_ = Floats(golden.at("y"));
    num_rows_ = static_cast<int>(x_.size() / weight_.columns());
  }
  void ExpectGolden(const std::vector<float>& y, float tolerance) const {
    ASSERT_EQ(y.size(), y_.size());
    float largest = 0;
    for (const float value : y_) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i], y_[i], tolerance * largest) << "at " << i;
    }
  }

  std::unique_ptr<MappedFile> packed_, expected_;
  checkpoint::RepackedWeights memory_;
  checkpoint::Tensor weight_;
  std::vector<float> x_, y_;
  int num_rows_ = 0;
};

TEST_P(Int4GoldenTest, ReferenceProductsAreTheGoldenOnes) {
  std::vector<float> y(y_.size()), scratch;
  reference::MatMul(weight_, x_.data(), num_rows_, y.data(), scratch);
  ExpectGolden(y, 1e-6f);
}

TEST_P(Int4GoldenTest, CpuProductsAreTheGoldenOnes) {
  ThreadPool pool({.num_threads = 2});
  WeightMemory weight_memory;
  const auto packed = PackedMatrix::Pack(weight_, pool, weight_memory);
  ASSERT_TRUE(packed.ok()) << packed.status();
  const PackedMatrix* parts[] = {&*packed};
  ActivationBuffer buffer(pool);
  OrderedInput ordered(pool);
  const int columns = static_cast<int>(weight_.columns());
  for (const bool quantized : {false, true}) {
    SCOPED_TRACE(quantized ? "integer products" : "float products");
    const Activations x =
        ordered.Apply(buffer.Prepare({x_.data(), num_rows_, columns}, quantized), *packed);
    std::vector<float> y(y_.size());

    MatMul(pool, x, parts,
           [&](int, int column, int num_columns, int first_row, int rows, const float* block) {
             StoreBlock(block, nullptr, rows, num_columns, packed->rows(),
                        y.data() + first_row * packed->rows() + column);
           });

    // Activations are quantized to 14 bits.
    ExpectGolden(y, quantized ? 1e-4f : 1e-6f);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Int4GoldenTest,
                         ::testing::Values("awq_gemm", "gptq", "gptq_act_order"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace baton::engine::cpu
