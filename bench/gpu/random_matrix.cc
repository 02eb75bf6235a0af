#include "bench/gpu/random_matrix.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "common/status.h"
#include "engine/ops/cuda/weight_uploader.h"
#include "gpu/status.h"

namespace baton::bench {
namespace {

using checkpoint::DType;
using engine::cuda::DeviceMatrix;

// A normal distribution repeated: drawing each value of a large matrix would take minutes.
constexpr std::size_t kDistinct = std::size_t{1} << 16;

std::vector<float> Normals(float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(kDistinct);
  for (float& value : values) value = normal(random);
  return values;
}

absl::StatusOr<gpu::DeviceBuffer> ToDevice(const void* data, std::size_t bytes) {
  BATON_ASSIGN_OR_RETURN(auto buffer, gpu::DeviceBuffer::Create(bytes));
  BATON_ASSIGN_OR_RETURN(const auto stream, gpu::Stream::Create());
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(buffer.data(), data, bytes, cudaMemcpyHostToDevice, stream.get()));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream.get()));
  return buffer;
}

absl::StatusOr<DeviceMatrix> Upload(DType dtype, int rows, int columns,
                                    std::span<const std::byte> data) {
  checkpoint::Tensor tensor;
  tensor.name = "random";
  tensor.dtype = dtype;
  tensor.shape = {rows, columns};
  tensor.data = data;
  BATON_ASSIGN_OR_RETURN(const auto uploader,
                         engine::cuda::WeightUploader::Create(engine::cuda::ElementType::kBF16));
  const auto slice = engine::cuda::MatrixSlice::Whole(tensor);
  BATON_ASSIGN_OR_RETURN(auto matrix, DeviceMatrix::Upload({&slice, 1}, false, *uploader));
  BATON_RETURN_IF_ERROR(uploader->Finish());
  return matrix;
}

std::vector<std::uint16_t> BFloat16s(std::size_t count, float deviation) {
  const std::vector<float> normals = Normals(deviation);
  std::vector<std::uint16_t> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = checkpoint::FloatToBFloat16(normals[(i + i / kDistinct) % kDistinct]);
  }
  return values;
}

}  // namespace

absl::StatusOr<DeviceMatrix> RandomDenseMatrix(int rows, int columns) {
  const auto values = BFloat16s(static_cast<std::size_t>(rows) * columns, 0.02f);
  return Upload(DType::kBF16, rows, columns, std::as_bytes(std::span(values)));
}

absl::StatusOr<DeviceMatrix> RandomQuantizedMatrix(DType dtype, int rows, int columns) {
  const std::size_t blocks =
      static_cast<std::size_t>(rows) * columns / checkpoint::BlockElements(dtype);
  const std::size_t block_bytes = checkpoint::BlockBytes(dtype);
  std::vector<std::byte> data(blocks * block_bytes);
  std::mt19937 random(2);
  for (std::byte& value : data) value = static_cast<std::byte>(random());
  // A block begins with its scale, f16 (and with Q4_1 its minimum): finite and small.
  const std::uint16_t scale = checkpoint::FloatToHalf(0.003f);
  const int numbers = dtype == DType::kQ4_1 ? 2 : 1;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (int i = 0; i < numbers; ++i) {
      std::memcpy(data.data() + block * block_bytes + 2 * i, &scale, sizeof(scale));
    }
  }
  return Upload(dtype, rows, columns, data);
}

absl::StatusOr<gpu::DeviceBuffer> RandomActivations(int rows, int columns) {
  const auto values = BFloat16s(static_cast<std::size_t>(rows) * columns, 1.0f);
  return ToDevice(values.data(), values.size() * sizeof(values[0]));
}

absl::StatusOr<gpu::DeviceBuffer> RandomFloats(std::size_t count) {
  const std::vector<float> normals = Normals(1.0f);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = normals[(i + i / kDistinct) % kDistinct];
  return ToDevice(values.data(), count * sizeof(float));
}

}  // namespace baton::bench
