#include "engine/ops/cuda/cuda_step.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "gpu/status.h"

namespace baton::engine::cuda {

absl::StatusOr<std::unique_ptr<CudaStep>> CudaStep::Create(const CudaStepOptions& options) {
  auto step = absl::WrapUnique(new CudaStep(options));
  BATON_ASSIGN_OR_RETURN(step->stream_, gpu::Stream::Create());
  BATON_ASSIGN_OR_RETURN(step->done_, gpu::Event::Create());
  for (int layer = 0; layer < options.num_layers; ++layer) {
    BATON_ASSIGN_OR_RETURN(gpu::Event event, gpu::Event::Create());
    step->layers_.push_back(std::move(event));
  }
  BATON_ASSIGN_OR_RETURN(step->buffers_, StepBuffers::Create(options.buffers));
  return step;
}

CudaStep::~CudaStep() { Abandon(); }

StepShape CudaStep::ShapeOf(const StepInput& input) {
  StepShape shape{.num_rows = input.batch.num_rows(),
                  .num_sequences = static_cast<int>(input.batch.sequences.size()),
                  .num_samples = static_cast<int>(input.samples.size())};
  longest_ = 0;
  for (const BatchSequence& sequence : input.batch.sequences) {
    longest_ = std::max(longest_, sequence.num_rows);
    shape.max_blocks = std::max(shape.max_blocks, static_cast<int>(sequence.block_table.size()));
  }
  const StepShape& largest = options_.buffers.largest;
  shape.max_blocks = std::min(shape.max_blocks, largest.max_blocks);
  return shape;
}

absl::StatusOr<bool> CudaStep::Begin(const StepInput& input) {
  num_written_ = num_reported_ = 0;
  mode_ = StepGraphs::Mode::kDirect;
  StepShape shape = ShapeOf(input);
  const StepShape& largest = options_.buffers.largest;
  if (shape.num_rows > largest.num_rows || shape.num_sequences > largest.num_sequences) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "step too large for the device's buffers: %d rows of %d sequences, limits %d and %d",
        shape.num_rows, shape.num_sequences, largest.num_rows, largest.num_sequences));
  }
  const bool only_decodes = longest_ == 1 && shape.num_samples == shape.num_rows;
  if (options_.graphs && only_decodes && !input.layers_watched && !input.hidden_needed) {
    shape =
        DecodeShape(shape.num_rows, shape.max_blocks, largest.num_sequences, largest.max_blocks);
    mode_ = graphs_.Next(shape);
  }
  buffers_.Fill(shape, input);
  BATON_RETURN_IF_ERROR(buffers_.Upload(stream()));
  if (mode_ == StepGraphs::Mode::kRecord) {
    BATON_RETURN_IF_ERROR(graphs_.BeginRecording(stream()));
  }
  return mode_ != StepGraphs::Mode::kReplay;
}

absl::Status CudaStep::LayerWritten(int layer, const LayerHook& on_layer, bool report) {
  if (!on_layer) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(layers_[layer].Record(stream()));
  num_written_ = layer + 1;
  while (report && num_reported_ < num_written_) {
    const cudaError_t error = cudaEventQuery(layers_[num_reported_].get());
    if (error == cudaErrorNotReady) break;
    BATON_CUDA_RETURN_IF_ERROR(error);
    on_layer(num_reported_++);
  }
  return absl::OkStatus();
}

absl::Status CudaStep::Launch() {
  if (mode_ == StepGraphs::Mode::kDirect) return absl::OkStatus();
  if (mode_ == StepGraphs::Mode::kRecord) {
    BATON_RETURN_IF_ERROR(graphs_.EndRecording(buffers_.shape(), stream()));
  }
  return graphs_.Launch(buffers_.shape(), stream());
}

absl::Status CudaStep::AwaitEvent(const gpu::Event& event) const {
  absl::Status status = event.Await(absl::Now() + options_.timeout);
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "the device did not end a step within %s; restart the worker, and see the driver's log",
        absl::FormatDuration(options_.timeout)));
  }
  return status;
}

absl::Status CudaStep::AwaitLayers(const LayerHook& on_layer) {
  while (num_reported_ < num_written_) {
    BATON_RETURN_IF_ERROR(AwaitEvent(layers_[num_reported_]));
    on_layer(num_reported_++);
  }
  return Await();
}

absl::Status CudaStep::Await() {
  BATON_RETURN_IF_ERROR(done_.Record(stream()));
  return AwaitEvent(done_);
}

void CudaStep::Abandon() {
  if (stream() == nullptr) return;
  graphs_.AbandonRecording(stream());
  // What was enqueued may still write to the pool. Of a device that does not answer nothing can be
  // expected any more, nor after an error, which is its last.
  Await().IgnoreError();
}

}  // namespace baton::engine::cuda
