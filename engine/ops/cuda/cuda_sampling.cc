#include "engine/ops/cuda/cuda_sampling.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/status.h"
#include "engine/ops/cuda/kernels/sample.h"
#include "engine/sampling/host_sampling.h"
#include "gpu/status.h"

namespace baton::engine::cuda {

absl::StatusOr<CudaSampling> CudaSampling::Create(int max_samples, int vocab_size) {
  CudaSampling sampling;
  sampling.vocab_size_ = vocab_size;
  sampling.rows_at_once_ = std::min(max_samples, LogitRowsAtOnce(vocab_size));
  const std::size_t row_bytes = static_cast<std::size_t>(vocab_size) * sizeof(float);
  const std::size_t token_bytes = static_cast<std::size_t>(max_samples) * sizeof(std::int32_t);
  BATON_ASSIGN_OR_RETURN(sampling.logits_, gpu::DeviceBuffer::Create(row_bytes * max_samples));
  BATON_ASSIGN_OR_RETURN(sampling.workspace_,
                         gpu::DeviceBuffer::Create(SampleWorkspaceBytes(max_samples, vocab_size)));
  // The kernel wants it empty, and leaves it so.
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemset(sampling.workspace_.data(), 0, sampling.workspace_.bytes()));
  BATON_ASSIGN_OR_RETURN(sampling.tokens_, gpu::DeviceBuffer::Create(token_bytes));
  BATON_ASSIGN_OR_RETURN(sampling.host_tokens_, gpu::PinnedBuffer::Create(token_bytes));
  BATON_ASSIGN_OR_RETURN(sampling.host_logits_,
                         gpu::PinnedBuffer::Create(row_bytes * sampling.rows_at_once_));
  return sampling;
}

absl::Status CudaSampling::Choose(const CudaStep& step) {
  const StepBuffers& buffers = step.buffers();
  const int num_samples = buffers.shape().num_samples;
  BATON_CUDA_RETURN_IF_ERROR(SampleTokens(logits(), num_samples, vocab_size_, buffers.sample_rows(),
                                          buffers.lists(), workspace_.data(),
                                          tokens_.as<std::int32_t>(), step.stream()));
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(host_tokens_.data(), tokens_.data(),
                                             num_samples * sizeof(std::int32_t),
                                             cudaMemcpyDeviceToHost, step.stream()));
  return absl::OkStatus();
}

absl::Status CudaSampling::Collect(CudaStep& step, std::span<const SampledRow> samples,
                                   std::span<SampledToken> tokens) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!step.buffers().skipped(static_cast<int>(i))) {
      tokens[i] = {};
      tokens[i].token = host_tokens_.as<std::int32_t>()[i];
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const std::span<float> row, Fetch(step, static_cast<int>(i), 1));
    tokens[i] = sampler_.Sample(*samples[i].params, samples[i].prompt, samples[i].output, row);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::span<float>> CudaSampling::Fetch(CudaStep& step, int first, int count) {
  const std::size_t floats = static_cast<std::size_t>(count) * vocab_size_;
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(host_logits_.data(), logits() + static_cast<std::size_t>(first) * vocab_size_,
                      floats * sizeof(float), cudaMemcpyDeviceToHost, step.stream()));
  BATON_RETURN_IF_ERROR(step.Await());
  return std::span(host_logits_.as<float>(), floats);
}

}  // namespace baton::engine::cuda
