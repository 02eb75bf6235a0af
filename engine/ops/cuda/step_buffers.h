#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/kv/block_allocator.h"
#include "engine/ops/cuda/kernels/device_batch.h"
#include "engine/ops/cuda/kernels/sample.h"
#include "engine/ops/ops.h"
#include "gpu/device_buffer.h"

namespace baton::engine::cuda {

// How large a step is on the device; at least as large as its batch, filled up with rows and
// sequences that compute nothing. Steps of one shape have all their data at the same addresses.
struct StepShape {
  int num_rows = 0;
  int num_sequences = 0;
  int num_samples = 0;
  int max_blocks = 0;  // of a block table
  bool operator==(const StepShape&) const = default;
};

struct StepBufferLimits {
  StepShape largest;
  // Tokens of prompts and outputs that penalties look at, all samples together.
  int list_tokens = 0;
};

// What a step needs to know, in pinned memory, and its copy on the device: written on the host,
// then brought over in one piece. Not thread-safe. The copy of one step must have ended before the
// next Fill.
class StepBuffers {
 public:
  static absl::StatusOr<StepBuffers> Create(const StepBufferLimits& limits);

  // Writes batch and samples into the pinned memory, filled up to `shape`, which is no larger than
  // the limits. Samples that need the host (see SamplesOnHost) are marked to be skipped.
  void Fill(const StepShape& shape, const StepInput& input);
  // Starts the copy.
  absl::Status Upload(cudaStream_t stream);

  // Of the shape last filled; device memory.
  DeviceBatch batch() const;
  const int* text_lengths() const { return device_at<int>(parts_.text_lengths); }
  const int* sampled_rows() const { return device_at<int>(parts_.sampled_rows); }  // [num_samples]
  const SampleRow* sample_rows() const { return device_at<SampleRow>(parts_.samples); }
  const std::int32_t* lists() const { return device_at<std::int32_t>(parts_.lists); }
  const StepShape& shape() const { return shape_; }
  // Whether the last Fill skipped sample `index`.
  bool skipped(int index) const { return host_at<SampleRow>(parts_.samples)[index].skip != 0; }

  std::size_t bytes() const { return device_.bytes(); }

 private:
  // Where the parts lie, in bytes from the beginning; each at a multiple of 16.
  struct Parts {
    std::size_t tokens, positions, row_sequence, text_lengths, sequences, sampled_rows, samples,
        block_tables, lists;
    explicit Parts(const StepShape& shape);
    Parts() = default;
  };
  template <class T>
  T* host_at(std::size_t offset) const {
    return reinterpret_cast<T*>(host_.data() + offset);
  }
  template <class T>
  const T* device_at(std::size_t offset) const {
    return reinterpret_cast<const T*>(device_.data() + offset);
  }
  void FillBatch(const RaggedBatch& batch);
  void FillSamples(std::span<const SampledRow> samples);
  // Appends `tokens` to the lists; false when they have no room.
  bool AddList(std::span<const std::int32_t> tokens, std::int32_t& begin, std::int32_t& count);

  gpu::PinnedBuffer host_;
  gpu::DeviceBuffer device_;
  int max_list_tokens_ = 0;
  StepShape shape_;
  Parts parts_;
  int num_list_tokens_ = 0;
};

// Whether the host's Sampler is needed: log-probabilities, or a bias of single tokens.
bool SamplesOnHost(const SamplingParams& params);

}  // namespace baton::engine::cuda
