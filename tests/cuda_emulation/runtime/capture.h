#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <thread>
#include <vector>

#include "cuda_emulation/runtime/stream.h"

namespace cuda_emulation {

// A capture of work into a graph. Operations are kept in the order of the calls, which is a valid
// order of the graph; clocks tell what was forked and not joined.
struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id owner;
  cudaStream_t origin;
  bool invalidated = false;
  bool ended = false;
  std::vector<std::shared_ptr<Operation>> operations;
  CaptureClock lengths;  // of each stream that takes part
};

// What an event knows when it was recorded in a capture.
struct CapturedPoint {
  std::shared_ptr<Capture> capture;  // null: was not
  CaptureClock clock;
};

// Takes `operation` if the stream captures (`captured`), or fails because the capture is invalid.
cudaError_t CaptureOperation(cudaStream_t stream, std::unique_ptr<Operation>& operation,
                             bool& captured);
// The stream's point in its capture; without one when it does not capture.
CapturedPoint PointOf(cudaStream_t stream);
// Lets `stream` come after `point`, which forks it into that capture or joins. `handled` is false
// when neither is captured.
cudaError_t JoinCapture(cudaStream_t stream, const CapturedPoint& point, bool& handled);
// A destroyed stream invalidates its capture.
void LeaveCapture(cudaStream_t stream);

// Fails, and invalidates captures, if a capture under way forbids calls that may wait for the
// device to this thread.
cudaError_t ForbidInCapture(const char* call);
#define CUDA_EMULATION_UNSAFE_IN_CAPTURE(name)                                \
  if (const cudaError_t forbidden = ::cuda_emulation::ForbidInCapture(#name); \
      forbidden != cudaSuccess) {                                             \
    return forbidden;                                                         \
  }

}  // namespace cuda_emulation
