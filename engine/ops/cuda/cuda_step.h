#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/ops/cuda/step_buffers.h"
#include "engine/ops/cuda/step_graphs.h"
#include "engine/ops/ops.h"
#include "gpu/stream.h"

namespace baton::engine::cuda {

struct CudaStepOptions {
  StepBufferLimits buffers;
  int num_layers = 0;
  bool graphs = true;
  absl::Duration timeout = absl::Minutes(1);
};

// The course of a step on the device: its stream and its data there, whether it is recorded or
// replayed, and which layers have been written. Not thread-safe.
class CudaStep {
 public:
  static absl::StatusOr<std::unique_ptr<CudaStep>> Create(const CudaStepOptions& options);
  // Waits for the device.
  ~CudaStep();

  // As Ops::BeginStep.
  absl::StatusOr<bool> Begin(const StepInput& input);
  // As Ops::LayerWritten: marks the place in the stream, and, if `report`, calls the hook for the
  // layers that the device has passed. A hook that waits for other ranks must not be called before
  // all work of the step is enqueued: theirs waits for it.
  absl::Status LayerWritten(int layer, const LayerHook& on_layer, bool report);
  // Starts the work of a step that was recorded just now or before.
  absl::Status Launch();
  // Waits until all work is done, layer by layer.
  absl::Status AwaitLayers(const LayerHook& on_layer);
  // Waits until all work is done. Not while recording.
  absl::Status Await();
  // As Ops::AbandonStep.
  void Abandon();

  cudaStream_t stream() const { return stream_.get(); }
  const StepBuffers& buffers() const { return buffers_; }
  int num_graphs() const { return graphs_.num_graphs(); }
  // Rows of the longest sequence of the step.
  int longest() const { return longest_; }

 private:
  explicit CudaStep(const CudaStepOptions& options) : options_(options) {}
  StepShape ShapeOf(const StepInput& input);
  absl::Status AwaitEvent(const gpu::Event& event) const;

  const CudaStepOptions options_;
  gpu::Stream stream_;
  gpu::Event done_;
  std::vector<gpu::Event> layers_;
  StepBuffers buffers_;
  StepGraphs graphs_;
  StepGraphs::Mode mode_ = StepGraphs::Mode::kDirect;
  int longest_ = 0;
  int num_written_ = 0;   // layers
  int num_reported_ = 0;  // of them, to the hook
};

}  // namespace baton::engine::cuda
