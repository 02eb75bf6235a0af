#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/cuda/cuda_step.h"
#include "engine/ops/ops.h"
#include "engine/sampling/sampler.h"
#include "gpu/device_buffer.h"

namespace baton::engine::cuda {

// Logits on the device, and the tokens chosen from them: there, or, for rows that the device's
// kernel does not know how to choose (SamplesOnHost, or lists without room), by the Sampler on a
// copy. Not thread-safe.
class CudaSampling {
 public:
  static absl::StatusOr<CudaSampling> Create(int max_samples, int vocab_size);

  float* logits() const { return logits_.as<float>(); }  // device memory, [max_samples, vocab]
  // Enqueues the choice of a token from each row of `logits` and its copy to the host.
  absl::Status Choose(const CudaStep& step);
  // After the step's work is done: the tokens of its samples; those of the host are chosen now.
  absl::Status Collect(CudaStep& step, std::span<const SampledRow> samples,
                       std::span<SampledToken> tokens);

  // Copies rows [first, first + count) of `logits` to the host and waits for them. At most
  // rows_at_once(). Valid until the next call.
  absl::StatusOr<std::span<float>> Fetch(CudaStep& step, int first, int count);
  int rows_at_once() const { return rows_at_once_; }

 private:
  int vocab_size_ = 0;
  int rows_at_once_ = 0;
  gpu::DeviceBuffer logits_, workspace_, tokens_;
  gpu::PinnedBuffer host_tokens_, host_logits_;
  Sampler sampler_;
};

}  // namespace baton::engine::cuda
