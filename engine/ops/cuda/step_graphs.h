#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "engine/ops/cuda/step_buffers.h"

namespace baton::engine::cuda {

// Owns a graph that can be launched. Move-only.
class GraphExec {
 public:
  GraphExec() = default;
  explicit GraphExec(cudaGraphExec_t graph) : graph_(graph) {}
  GraphExec(GraphExec&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  GraphExec& operator=(GraphExec&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~GraphExec() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }
  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

// The shape that a step of `num_rows` decoded rows is filled up to, so that few graphs serve all:
// 1, 2, 4, 8, 16, 24, 32, ... rows, at most `max_rows`; tables of a power of two of blocks from 16
// on, at most `max_blocks`.
StepShape DecodeShape(int num_rows, int longest_table, int max_rows, int max_blocks);

// Recorded steps, one for each shape. A shape's first step runs as it is, so that whatever is set
// up at first use is set up outside of a recording; the second is recorded and launched; later ones
// are launched. Not thread-safe.
class StepGraphs {
 public:
  enum class Mode : std::uint8_t { kDirect, kRecord, kReplay };

  // What to do with a step of this shape; notes its occurrence.
  Mode Next(const StepShape& shape);
  // kRecord: between these two the stream takes note of work instead of doing it.
  absl::Status BeginRecording(cudaStream_t stream);
  absl::Status EndRecording(const StepShape& shape, cudaStream_t stream);
  // Gives up a recording, if one is under way.
  void AbandonRecording(cudaStream_t stream);
  absl::Status Launch(const StepShape& shape, cudaStream_t stream) const;

  int num_graphs() const { return num_graphs_; }

 private:
  struct Before {
    bool operator()(const StepShape& a, const StepShape& b) const {
      return std::pair(a.num_rows, a.max_blocks) < std::pair(b.num_rows, b.max_blocks);
    }
  };
  std::map<StepShape, GraphExec, Before> graphs_;  // without a graph: seen once
  int num_graphs_ = 0;
  bool recording_ = false;
};

}  // namespace baton::engine::cuda
