#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_emulation/controls.h"
#include "cuda_emulation/runtime/stream.h"

// CUDA's handles. Operations are shared: a graph that is launched may be destroyed or updated.
struct CUgraph_st {
  std::vector<std::shared_ptr<cuda_emulation::Operation>> operations;
};
struct CUgraphExec_st {
  std::vector<std::shared_ptr<cuda_emulation::Operation>> operations;
  // Two launches of one executable graph do not overlap.
  std::shared_ptr<std::mutex> running = std::make_shared<std::mutex>();
  int device = 0;
};

namespace cuda_emulation {
cudaGraph_t NewGraph(std::vector<std::shared_ptr<Operation>> operations);

// Each source file adds what it keeps.
void CountAllocations(LiveObjects& objects);
void CountStreams(LiveObjects& objects);
void CountEvents(LiveObjects& objects);
void CountGraphs(LiveObjects& objects);
}  // namespace cuda_emulation
