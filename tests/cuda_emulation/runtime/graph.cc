#include "cuda_emulation/runtime/graph.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "cuda_emulation/executor/statistics.h"
#include "cuda_emulation/runtime/capture.h"
#include "cuda_emulation/runtime/devices.h"

namespace cuda_emulation {
namespace {

struct Graphs {
  std::mutex mutex;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;
};
Graphs& TheGraphs() {
  static auto* graphs = new Graphs;
  return *graphs;
}

template <class T>
cudaError_t CheckLive(std::set<T> Graphs::*set, T handle, const char* call) {
  const std::lock_guard lock(TheGraphs().mutex);
  if ((TheGraphs().*set).contains(handle)) return cudaSuccess;
  return Refuse(cudaErrorInvalidValue, std::string(call) + ": no live graph");
}

cudaError_t InstantiateGraph(cudaGraphExec_t* executable, cudaGraph_t graph, const char* call) {
  if (const cudaError_t error = CheckLive(&Graphs::graphs, graph, call); error != cudaSuccess) {
    return error;
  }
  auto* made = new CUgraphExec_st{.operations = graph->operations, .device = CurrentDevice()};
  const std::lock_guard lock(TheGraphs().mutex);
  TheGraphs().executables.insert(made);
  *executable = made;
  return cudaSuccess;
}

// Index of the first difference that an update may not make, or -1.
int FirstDifference(const CUgraphExec_st& executable, const CUgraph_st& graph) {
  const std::size_t count = std::min(executable.operations.size(), graph.operations.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Operation& is = *executable.operations[i];
    const Operation& becomes = *graph.operations[i];
    if (std::strcmp(is.kind, becomes.kind) != 0 || is.subject != becomes.subject) {
      return static_cast<int>(i);
    }
  }
  if (executable.operations.size() != graph.operations.size()) return static_cast<int>(count);
  return -1;
}

}  // namespace

cudaGraph_t NewGraph(std::vector<std::shared_ptr<Operation>> operations) {
  auto* graph = new CUgraph_st{std::move(operations)};
  const std::lock_guard lock(TheGraphs().mutex);
  TheGraphs().graphs.insert(graph);
  return graph;
}

void CountGraphs(LiveObjects& objects) {
  const std::lock_guard lock(TheGraphs().mutex);
  objects.graphs = TheGraphs().graphs.size() + TheGraphs().executables.size();
}

}  // namespace cuda_emulation

using cuda_emulation::CheckLive;
using cuda_emulation::Graphs;
using cuda_emulation::Operation;
using cuda_emulation::Refuse;
using cuda_emulation::TheGraphs;

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  CUDA_EMULATION_ENTER(cudaGraphInstantiate);
  return cuda_emulation::InstantiateGraph(executable, graph, "cudaGraphInstantiate");
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  CUDA_EMULATION_ENTER(cudaGraphInstantiateWithFlags);
  return cuda_emulation::InstantiateGraph(executable, graph, "cudaGraphInstantiateWithFlags");
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t) {
  CUDA_EMULATION_ENTER(cudaGraphUpload);
  return CheckLive(&Graphs::executables, executable, "cudaGraphUpload");
}

// The whole graph is one operation of the stream: it runs in the order of its capture.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  CUDA_EMULATION_ENTER(cudaGraphLaunch);
  if (const cudaError_t error = CheckLive(&Graphs::executables, executable, "cudaGraphLaunch");
      error != cudaSuccess) {
    return error;
  }
  if (const cudaError_t error = cuda_emulation::CheckStream(stream, "cudaGraphLaunch");
      error != cudaSuccess) {
    return error;
  }
  if (stream->queue->device() != executable->device) {
    return Refuse(cudaErrorInvalidValue,
                  "cudaGraphLaunch: the graph and the stream are of devices " +
                      std::to_string(executable->device) + " and " +
                      std::to_string(stream->queue->device()));
  }
  ++cuda_emulation::TheStatistics().graph_launches;
  auto launch = std::make_unique<Operation>();
  launch->kind = "graph";
  launch->subject = executable;
  launch->run = [operations = executable->operations, running = executable->running,
                 device = executable->device] {
    const std::lock_guard lock(*running);
    for (const auto& operation : operations) {
      cuda_emulation::AcquireUnseen(&operation->issue_tag);
      if (operation->always || cuda_emulation::StickyError(device) == cudaSuccess) {
        operation->run();
      }
    }
  };
  return cuda_emulation::Submit(stream, std::move(launch));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  CUDA_EMULATION_ENTER(cudaGraphExecUpdate);
  *result = {};
  if (const cudaError_t error = CheckLive(&Graphs::executables, executable, "cudaGraphExecUpdate");
      error != cudaSuccess) {
    return error;
  }
  if (const cudaError_t error = CheckLive(&Graphs::graphs, graph, "cudaGraphExecUpdate");
      error != cudaSuccess) {
    return error;
  }
  const int difference = cuda_emulation::FirstDifference(*executable, *graph);
  if (difference >= 0) {
    result->result = cudaGraphExecUpdateErrorTopologyChanged;
    return Refuse(cudaErrorGraphExecUpdateFailure,
                  "cudaGraphExecUpdate: operation " + std::to_string(difference) + " differs");
  }
  result->result = cudaGraphExecUpdateSuccess;
  executable->operations = graph->operations;
  return cudaSuccess;
}

// `nodes` may be null: then only the count is told.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  CUDA_EMULATION_ENTER(cudaGraphGetNodes);
  if (const cudaError_t error = CheckLive(&Graphs::graphs, graph, "cudaGraphGetNodes");
      error != cudaSuccess) {
    return error;
  }
  if (nodes != nullptr) return Refuse(cudaErrorNotSupported, "cudaGraphGetNodes: counts only");
  *count = graph->operations.size();
  return cudaSuccess;
}

// These two work on a failed device too: destructors call them.
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const cuda_emulation::Quiet quiet;
  const cuda_emulation::UnseenLocks unseen;
  if (const cudaError_t error = CheckLive(&Graphs::graphs, graph, "cudaGraphDestroy");
      error != cudaSuccess) {
    return error;
  }
  {
    const std::lock_guard lock(TheGraphs().mutex);
    TheGraphs().graphs.erase(graph);
  }
  delete graph;
  return cuda_emulation::EnterCall("cudaGraphDestroy");
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const cuda_emulation::Quiet quiet;
  const cuda_emulation::UnseenLocks unseen;
  if (const cudaError_t error = CheckLive(&Graphs::executables, executable, "cudaGraphExecDestroy");
      error != cudaSuccess) {
    return error;
  }
  {
    const std::lock_guard lock(TheGraphs().mutex);
    TheGraphs().executables.erase(executable);
  }
  delete executable;
  return cuda_emulation::EnterCall("cudaGraphExecDestroy");
}

}  // extern "C"
