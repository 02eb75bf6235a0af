#include "engine/ops/cuda/step_buffers.h"

#include <algorithm>
#include <cstring>

#include "common/status.h"
#include "gpu/status.h"

namespace baton::engine::cuda {
namespace {

// Moves `offset` past `count` elements of T, and returns where they begin.
template <class T>
std::size_t Take(std::size_t& offset, std::size_t count) {
  const std::size_t begin = offset;
  offset = (offset + count * sizeof(T) + 15) / 16 * 16;
  return begin;
}

bool HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

}  // namespace

bool SamplesOnHost(const SamplingParams& params) {
  return params.logprobs || params.top_logprobs > 0 || !params.logit_bias.empty();
}

StepBuffers::Parts::Parts(const StepShape& shape) {
  std::size_t end = 0;
  tokens = Take<int>(end, shape.num_rows);
  positions = Take<int>(end, shape.num_rows);
  row_sequence = Take<int>(end, shape.num_rows);
  text_lengths = Take<int>(end, shape.num_rows);
  sequences = Take<SequenceRows>(end, shape.num_sequences);
  sampled_rows = Take<int>(end, shape.num_samples);
  samples = Take<SampleRow>(end, shape.num_samples);
  block_tables = Take<int>(end, static_cast<std::size_t>(shape.num_sequences) * shape.max_blocks);
  lists = end;
}

absl::StatusOr<StepBuffers> StepBuffers::Create(const StepBufferLimits& limits) {
  const std::size_t bytes = Parts(limits.largest).lists +
                            static_cast<std::size_t>(limits.list_tokens) * sizeof(std::int32_t);
  StepBuffers buffers;
  BATON_ASSIGN_OR_RETURN(buffers.host_, gpu::PinnedBuffer::Create(bytes));
  BATON_ASSIGN_OR_RETURN(buffers.device_, gpu::DeviceBuffer::Create(bytes));
  buffers.max_list_tokens_ = limits.list_tokens;
  return buffers;
}

void StepBuffers::Fill(const StepShape& shape, const StepInput& input) {
  shape_ = shape;
  parts_ = Parts(shape);
  num_list_tokens_ = 0;
  FillBatch(input.batch);
  FillSamples(input.samples);
}

void StepBuffers::FillBatch(const RaggedBatch& batch) {
  const int num_rows = batch.num_rows();
  const auto fill = [&](std::size_t offset, std::span<const std::int32_t> values, int rest) {
    int* to = host_at<int>(offset);
    std::copy(values.begin(), values.end(), to);
    std::fill(to + num_rows, to + shape_.num_rows, rest);
  };
  fill(parts_.tokens, batch.tokens, 0);
  fill(parts_.positions, batch.positions, 0);
  fill(parts_.text_lengths, batch.text_lengths, 1);
  int* row_sequence = host_at<int>(parts_.row_sequence);
  std::fill(row_sequence, row_sequence + shape_.num_rows, -1);
  auto* sequences = host_at<SequenceRows>(parts_.sequences);
  int* table = host_at<int>(parts_.block_tables);
  int index = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    std::fill_n(row_sequence + sequence.first_row, sequence.num_rows, index++);
    *sequences++ = {sequence.first_row, sequence.num_rows, sequence.start_position};
    const auto count = std::min<std::size_t>(sequence.block_table.size(), shape_.max_blocks);
    std::copy_n(sequence.block_table.begin(), count, table);
    table += shape_.max_blocks;
  }
  for (; index < shape_.num_sequences; ++index) *sequences++ = {num_rows, 0, 0};
}

bool StepBuffers::AddList(std::span<const std::int32_t> tokens, std::int32_t& begin,
                          std::int32_t& count) {
  if (static_cast<std::size_t>(max_list_tokens_ - num_list_tokens_) < tokens.size()) return false;
  begin = num_list_tokens_;
  count = static_cast<std::int32_t>(tokens.size());
  std::copy(tokens.begin(), tokens.end(), host_at<std::int32_t>(parts_.lists) + begin);
  num_list_tokens_ += count;
  return true;
}

void StepBuffers::FillSamples(std::span<const SampledRow> samples) {
  int* rows = host_at<int>(parts_.sampled_rows);
  auto* to = host_at<SampleRow>(parts_.samples);
  for (const SampledRow& sample : samples) {
    const SamplingParams& params = *sample.params;
    SampleRow row{};
    row.temperature = params.temperature;
    row.top_p = params.top_p;
    row.min_p = params.min_p;
    row.repetition_penalty = params.repetition_penalty;
    row.presence_penalty = params.presence_penalty;
    row.frequency_penalty = params.frequency_penalty;
    row.top_k = params.top_k;
    row.seed = params.seed;
    row.position = sample.output.size();
    bool fits = !SamplesOnHost(params);
    if (fits && HasPenalties(params)) {
      fits = AddList(sample.prompt, row.prompt_begin, row.num_prompt) &&
             AddList(sample.output, row.output_begin, row.num_output);
    }
    if (fits && static_cast<std::int64_t>(sample.output.size()) < params.min_tokens) {
      fits = AddList(params.stop_token_ids, row.masked_begin, row.num_masked);
    }
    row.skip = fits ? 0 : 1;
    *rows++ = sample.row;
    *to++ = row;
  }
  // Rows that only fill up need logits of something.
  for (auto i = static_cast<int>(samples.size()); i < shape_.num_samples; ++i) {
    *rows++ = 0;
    *to = {};
    to++->skip = 1;
  }
}

absl::Status StepBuffers::Upload(cudaStream_t stream) {
  const std::size_t bytes = parts_.lists + num_list_tokens_ * sizeof(std::int32_t);
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(device_.data(), host_.data(), bytes, cudaMemcpyHostToDevice, stream));
  return absl::OkStatus();
}

DeviceBatch StepBuffers::batch() const {
  return {.tokens = device_at<int>(parts_.tokens),
          .positions = device_at<int>(parts_.positions),
          .row_sequence = device_at<int>(parts_.row_sequence),
          .sequences = device_at<SequenceRows>(parts_.sequences),
          .block_tables = device_at<int>(parts_.block_tables),
          .max_blocks = shape_.max_blocks,
          .num_rows = shape_.num_rows,
          .num_sequences = shape_.num_sequences};
}

}  // namespace baton::engine::cuda
