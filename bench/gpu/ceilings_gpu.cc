#include <cuda_runtime_api.h>

#include <memory>

#include "bench/gpu/kernel_cases.h"
#include "bench/gpu/random_matrix.h"
#include "common/status.h"
#include "engine/ops/cuda/matmul.h"
#include "gpu/device_buffer.h"
#include "gpu/status.h"

namespace baton::bench {

KernelBenchOptions LargeOptions() {
  return {.model = {"Llama-3.1-8B", 4096, 14336, 32, 8, 128, 128256},
          .decode_rows = {1, 4, 16, 64},
          .prefill_rows = {512, 2048},
          .context_tokens = {1024, 8192}};
}

KernelBenchOptions SmallOptions() {
  return {.model = {"small", 64, 128, 4, 2, 64, 512},
          .decode_rows = {1, 4},
          .prefill_rows = {32},
          .context_tokens = {64}};
}

absl::StatusOr<DeviceCeilings> MeasureCeilings(DeviceTimer& timer, bool small) {
  DeviceCeilings ceilings;
  {
    // Far larger than the level-2 cache.
    const std::size_t bytes = small ? std::size_t{1} << 16 : std::size_t{2} << 30;
    BATON_ASSIGN_OR_RETURN(auto from, gpu::DeviceBuffer::Create(bytes));
    BATON_ASSIGN_OR_RETURN(auto to, gpu::DeviceBuffer::Create(bytes));
    BATON_ASSIGN_OR_RETURN(const double seconds, timer.Time([&] {
      return gpu::ToStatus(
          cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, timer.stream()),
          "cudaMemcpyAsync");
    }));
    ceilings.copy_bytes_per_second = 2.0 * bytes / seconds;
  }
  const int n = small ? 64 : 8192;
  BATON_ASSIGN_OR_RETURN(const auto weights, RandomDenseMatrix(n, n));
  BATON_ASSIGN_OR_RETURN(auto x, RandomActivations(n, n));
  BATON_ASSIGN_OR_RETURN(auto y, gpu::DeviceBuffer::Create(std::size_t{2} * n * n));
  BATON_ASSIGN_OR_RETURN(auto matmul, engine::cuda::Matmul::Create({}));
  BATON_ASSIGN_OR_RETURN(const double seconds, timer.Time([&] {
    return matmul->Multiply(weights, {.x = x.data(), .num_rows = n, .y = y.data()}, timer.stream());
  }));
  ceilings.matrix_flops_per_second = 2.0 * n * n * n / seconds;
  return ceilings;
}

}  // namespace baton::bench
