// Products in the host emulation only: failing calls, schedules and barriers.
#include <gmock/gmock.h>

#include <functional>
#include <numeric>
#include <string>

#include "cuda_emulation/runtime.h"
#include "engine/ops/cuda/cuda_weights.h"
#include "engine/ops/cuda/kernels/grouped_matmul.h"
#include "engine/ops/cuda/kernels/quantized_matmul.h"
#include "engine/ops/cuda/matmul.h"
#include "engine/parallel/shard.h"
#include "tests/support/device_weights.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/random_matrix.h"

namespace baton::engine::cuda {
namespace {

using checkpoint::DType;

class MatmulFaultsTest : public testing::DeviceWeightsTest {
 protected:
  void TearDown() override {
    cuda_emulation::ClearFaults();
    cuda_emulation::SkipBarrier("");
    cuda_emulation::SetSchedule({});
  }
};

struct FailingCall {
  const char* call;
  cudaError_t error;
  absl::StatusCode code;
};

TEST_F(MatmulFaultsTest, LoadingALayerFailsCleanlyWhereverACallFails) {
  checkpoint::ModelMetadata metadata = testing::TinyMetadata();
  metadata.attention_bias = true;
  const auto checkpoint = testing::MakeRandomCheckpoint(metadata, DType::kQ8_0, 1);
  const auto plan = MakeModelPlan(metadata, 0);
  ASSERT_TRUE(plan.ok());
  const auto shard = MakeShard(*plan, 1, 0);
  ASSERT_TRUE(shard.ok());
  const auto before = cuda_emulation::CountLiveObjects();
  for (const FailingCall& failing :
       {FailingCall{"cudaMalloc", cudaErrorMemoryAllocation, absl::StatusCode::kResourceExhausted},
        FailingCall{"cudaMemcpyAsync", cudaErrorInvalidValue, absl::StatusCode::kInternal},
        FailingCall{"cudaEventRecord", cudaErrorUnknown, absl::StatusCode::kInternal}}) {
    int num_failures = 0;
    for (int after = 0; after < 100; ++after) {
      SCOPED_TRACE(absl::StrCat(failing.call, " after ", after));
      auto loader = WeightUploader::Create(ElementType::kBF16, 1 << 12);
      ASSERT_TRUE(loader.ok());
      cuda_emulation::InjectFault(
          {.call = failing.call, .error = failing.error, .after = after, .times = 1});

      const auto layer = LoadCudaLayer(*checkpoint, *plan, *shard, 0, **loader);

      cuda_emulation::ClearFaults();
      if (layer.ok()) break;
      ++num_failures;
      EXPECT_EQ(layer.status().code(), failing.code) << layer.status().ToString();
    }
    EXPECT_GE(num_failures, 7) << failing.call;
    EXPECT_EQ(cuda_emulation::CountLiveObjects(), before) << failing.call;
  }
}

TEST_F(MatmulFaultsTest, CreateFailsCleanly) {
  const auto before = cuda_emulation::CountLiveObjects();
  for (const auto& [call, after] :
       {std::pair("cudaMalloc", 0), {"cudaMalloc", 1}, {"cublasLtCreate", 0}}) {
    SCOPED_TRACE(absl::StrCat(call, " after ", after));
    cuda_emulation::InjectFault(
        {.call = call, .error = cudaErrorMemoryAllocation, .after = after, .times = 1});

    const auto matmul = Matmul::Create({.workspace_bytes = 1024, .scratch_bytes = 1024});

    cuda_emulation::ClearFaults();
    EXPECT_FALSE(matmul.ok());
    EXPECT_EQ(cuda_emulation::CountLiveObjects(), before);
  }
}

TEST_F(MatmulFaultsTest, AFailingProductNamesItsShapeAndTheNextOneRuns) {
  std::mt19937 random(1);
  const testing::RandomMatrix matrix(DType::kQ8_0, 24, 64, random);
  DeviceLinear linear;
  linear.parts.push_back(Upload(matrix.tensor(), ElementType::kBF16));
  const auto matmul = Matmul::Create({.workspace_bytes = 1 << 16, .scratch_bytes = 1 << 16});
  ASSERT_TRUE(matmul.ok());
  const auto x = OnDevice(100 * 64 * 2), y = OnDevice(100 * 24 * 4);
  const Product product = {.x = x.data(), .num_rows = 100, .y = y.data(), .float_output = true};
  for (const char* call : {"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"}) {
    cuda_emulation::InjectFault({.call = call, .error = cudaErrorUnknown});

    const absl::Status status = (*matmul)->Multiply(linear, product, stream());

    cuda_emulation::ClearFaults();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("24 x 64 weights")) << call;
    EXPECT_TRUE((*matmul)->Multiply(linear, product, stream()).ok()) << call;
  }
  cuda_emulation::InjectFault({.call = "cudaLaunchKernelExC", .error = cudaErrorLaunchFailure});
  EXPECT_EQ((*matmul)->Multiply(linear, product, stream()).code(), absl::StatusCode::kInternal);
  testing::ExpectCuda(cudaStreamSynchronize(stream()));
}

TEST_F(MatmulFaultsTest, TheOwnKernelTakesOverWhereTheLibraryHasNone) {
  std::mt19937 random(2);
  constexpr int kRows = 100, kOutputs = 24, kColumns = 64;
  const testing::RandomMatrix matrix(DType::kQ8_0, kOutputs, kColumns, random);
  DeviceLinear linear;
  linear.parts.push_back(Upload(matrix.tensor(), ElementType::kBF16));
  linear.bias = ToDevice(testing::RandomInputs(ElementType::kBF16, 1, kOutputs, random));
  const auto x = ToDevice(testing::AllToBits(
      ElementType::kBF16, testing::RandomInputs(ElementType::kBF16, kRows, kColumns, random)));
  const auto run = [&](bool one_class) {
    const auto matmul = Matmul::Create(
        {.workspace_bytes = 1 << 16, .scratch_bytes = 1 << 16, .one_class = one_class});
    EXPECT_TRUE(matmul.ok());
    const auto y = OnDevice(kRows * kOutputs * sizeof(float));
    const absl::Status status = (*matmul)->Multiply(
        linear,
        {.x = x.data(), .num_rows = kRows, .y = y.data(), .float_output = true, .add_bias = true},
        stream());
    EXPECT_TRUE(status.ok()) << status.ToString();
    return ToHost<float>(y, kRows * kOutputs);
  };
  const std::vector<float> own = run(/*one_class=*/true);
  cuda_emulation::InjectFault(
      {.call = "cublasLtMatmulAlgoGetHeuristic", .error = cudaErrorNotSupported});

  EXPECT_EQ(run(/*one_class=*/false), own);
}

// Products that meet every barrier and wait of the kernels.
class SchedulesTest : public MatmulFaultsTest {
 protected:
  void SetUp() override {
    MatmulFaultsTest::SetUp();
    std::mt19937 random(7);
    for (const DType dtype : {DType::kBF16, DType::kQ4_1}) {
      const testing::RandomMatrix matrix(dtype, kOutputs, kColumns, random);
      weights_.push_back(Upload(matrix.tensor(), ElementType::kBF16));
    }
    x_ = ToDevice(testing::AllToBits(
        ElementType::kBF16, testing::RandomInputs(ElementType::kBF16, kRows, kColumns, random)));
  }

  // All results of one run; empty when a kernel failed.
  std::vector<float> Run() {
    std::vector<float> results;
    for (const DeviceMatrix& weights : weights_) {
      const auto y = ToDevice(std::vector<float>(2 * kRows * kOutputs));
      const FewRowsArguments few = {.weights = weights.view(),
                                    .x = x_.data(),
                                    .x_stride = kColumns,
                                    .num_rows = 3,
                                    .bias = nullptr,
                                    .y = y.data(),
                                    .y_stride = kOutputs,
                                    .float_output = true,
                                    .add = false};
      GroupedArguments many = {.weights = weights.view(),
                               .num_groups = 1,
                               .rows_per_group = kOutputs,
                               .offsets = nullptr,
                               .x_rows = nullptr,
                               .x = x_.data(),
                               .x_stride = kColumns,
                               .num_rows = kRows,
                               .bias = nullptr,
                               .y = y.as<float>() + kRows * kOutputs,
                               .y_stride = kOutputs,
                               .float_output = true,
                               .add = false};
      if (FewRowsMatmul(few, stream()) != cudaSuccess) return {};
      if (GroupedMatmul(many, stream()) != cudaSuccess) return {};
      if (cudaStreamSynchronize(stream()) != cudaSuccess) return {};
      const auto part = ToHost<float>(y, 2 * kRows * kOutputs);
      results.insert(results.end(), part.begin(), part.end());
    }
    return results;
  }

  static std::vector<cuda_emulation::Schedule> Schedules() {
    using cuda_emulation::AsyncCopies;
    using cuda_emulation::Order;
    return {{Order::kForward, 1, AsyncCopies::kLate},
            {Order::kReverse, 1, AsyncCopies::kEarly},
            {Order::kRandom, 2, AsyncCopies::kRandom},
            {Order::kRandom, 3, AsyncCopies::kEarly}};
  }
  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  // More than two steps of a tile, and two chunks of the kernel for few rows.
  static constexpr int kOutputs = 20, kColumns = 2112, kRows = 18;
  std::vector<DeviceMatrix> weights_;
  gpu::DeviceBuffer x_;
};

TEST_F(SchedulesTest, ResultsAreTheSameInEverySchedule) {
  const std::vector<float> expected = Run();
  ASSERT_FALSE(expected.empty());
  for (const auto& schedule : Schedules()) {
    SCOPED_TRACE(absl::StrCat("order ", static_cast<int>(schedule.order), " copies ",
                              static_cast<int>(schedule.copies)));
    cuda_emulation::SetSchedule(schedule);
    EXPECT_TRUE(SameBits(Run(), expected));
  }
}

TEST_F(SchedulesTest, EveryBarrierIsNeeded) {
  const std::vector<float> expected = Run();
  int num_barriers = 0;
  for (const std::string& site : cuda_emulation::BarriersMet()) {
    const bool ours = site.find("quantized_matmul.cu") != std::string::npos ||
                      site.find("grouped_matmul.cu") != std::string::npos;
    if (!ours) continue;
    ++num_barriers;
    bool noticed = false;
    for (const auto& schedule : Schedules()) {
      cuda_emulation::SetSchedule(schedule);
      cuda_emulation::SkipBarrier(site.substr(site.rfind('/') + 1));
      noticed |= !SameBits(Run(), expected);
      cuda_emulation::SkipBarrier("");
      cuda_emulation::ResetDevices();
    }
    EXPECT_TRUE(noticed) << site;
  }
  EXPECT_EQ(num_barriers, 4);
}

}  // namespace
}  // namespace baton::engine::cuda
