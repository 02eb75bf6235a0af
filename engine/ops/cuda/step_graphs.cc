#include "engine/ops/cuda/step_graphs.h"

#include <algorithm>
#include <bit>

#include "gpu/status.h"

namespace baton::engine::cuda {

StepShape DecodeShape(int num_rows, int longest_table, int max_rows, int max_blocks) {
  constexpr int kStep = 8;  // between the larger numbers of rows
  constexpr int kFewestBlocks = 16;
  const int rows = num_rows < kStep
                       ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(num_rows)))
                       : (num_rows + kStep - 1) / kStep * kStep;
  const auto blocks = static_cast<int>(
      std::bit_ceil(static_cast<unsigned>(std::max(longest_table, kFewestBlocks))));
  StepShape shape;
  shape.num_rows = std::min(rows, max_rows);
  shape.num_sequences = shape.num_samples = shape.num_rows;
  shape.max_blocks = std::min(blocks, max_blocks);
  return shape;
}

StepGraphs::Mode StepGraphs::Next(const StepShape& shape) {
  const auto [found, is_new] = graphs_.try_emplace(shape);
  if (is_new) return Mode::kDirect;
  return found->second.get() == nullptr ? Mode::kRecord : Mode::kReplay;
}

absl::Status StepGraphs::BeginRecording(cudaStream_t stream) {
  // Other threads of the process may meanwhile allocate or wait.
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  recording_ = true;
  return absl::OkStatus();
}

absl::Status StepGraphs::EndRecording(const StepShape& shape, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamEndCapture(stream, &graph));
  recording_ = false;
  cudaGraphExec_t exec = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  BATON_CUDA_RETURN_IF_ERROR(error);
  graphs_[shape] = GraphExec(exec);
  ++num_graphs_;
  return absl::OkStatus();
}

void StepGraphs::AbandonRecording(cudaStream_t stream) {
  if (!std::exchange(recording_, false)) return;
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
  cudaGetLastError();  // of a recording that was broken
}

absl::Status StepGraphs::Launch(const StepShape& shape, cudaStream_t stream) const {
  BATON_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(graphs_.at(shape).get(), stream));
  return absl::OkStatus();
}

}  // namespace baton::engine::cuda
