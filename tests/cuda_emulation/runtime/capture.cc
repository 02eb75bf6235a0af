#include "cuda_emulation/runtime/capture.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "cuda_emulation/runtime/devices.h"
#include "cuda_emulation/runtime/graph.h"

namespace cuda_emulation {
namespace {

// Guards every capture and the capture fields of every stream. Captures are few and short.
std::mutex& Mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::vector<std::shared_ptr<Capture>>& Active() {
  static auto* active = new std::vector<std::shared_ptr<Capture>>;
  return *active;
}
std::atomic<int> num_active{0};  // so that calls outside of captures take no lock

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

void Advance(cudaStream_t stream) { stream->clock[stream] = ++stream->capture->lengths[stream]; }

void Merge(CaptureClock& into, const CaptureClock& from) {
  for (const auto& [stream, length] : from) {
    std::uint64_t& known = into[stream];
    known = std::max(known, length);
  }
}

void End(const std::shared_ptr<Capture>& capture) {
  for (const auto& [stream, length] : capture->lengths) {
    stream->capture = nullptr;
    stream->clock.clear();
  }
  capture->ended = true;
  std::erase(Active(), capture);
  --num_active;
}

bool Joined(const Capture& capture) {
  const CaptureClock& origin = capture.origin->clock;
  return std::all_of(capture.lengths.begin(), capture.lengths.end(), [&origin](const auto& entry) {
    const auto at = origin.find(entry.first);
    return at != origin.end() && at->second >= entry.second;
  });
}

}  // namespace

cudaError_t CaptureOperation(cudaStream_t stream, std::unique_ptr<Operation>& operation,
                             bool& captured) {
  if (num_active.load() == 0) return cudaSuccess;
  const std::lock_guard lock(Mutex());
  if (stream->capture == nullptr) return cudaSuccess;
  captured = true;
  if (stream->capture->invalidated) {
    return Refuse(cudaErrorStreamCaptureInvalidated, "the stream's capture was invalidated");
  }
  ReleaseUnseen(&operation->issue_tag);
  stream->capture->operations.push_back(std::move(operation));
  Advance(stream);
  return cudaSuccess;
}

CapturedPoint PointOf(cudaStream_t stream) {
  if (num_active.load() == 0) return {};
  const std::lock_guard lock(Mutex());
  return {stream->capture, stream->clock};
}

cudaError_t JoinCapture(cudaStream_t stream, const CapturedPoint& point, bool& handled) {
  if (num_active.load() == 0 && point.capture == nullptr) return cudaSuccess;
  const std::lock_guard lock(Mutex());
  handled = stream->capture != nullptr || point.capture != nullptr;
  if (!handled) return cudaSuccess;
  if (point.capture == nullptr) {
    stream->capture->invalidated = true;
    return Refuse(cudaErrorStreamCaptureIsolation,
                  "a capturing stream waits for an event that was recorded outside of its capture");
  }
  if (point.capture->ended) {
    return Refuse(cudaErrorCapturedEvent, "the event was recorded in a capture that has ended");
  }
  if (stream->capture == nullptr) {
    stream->capture = point.capture;
    Merge(stream->clock, point.clock);
    Advance(stream);  // to be joined even if it captures nothing
    return cudaSuccess;
  }
  if (stream->capture != point.capture) {
    stream->capture->invalidated = point.capture->invalidated = true;
    return Refuse(cudaErrorStreamCaptureMerge, "two captures would become one");
  }
  Merge(stream->clock, point.clock);
  return cudaSuccess;
}

void LeaveCapture(cudaStream_t stream) {
  const std::lock_guard lock(Mutex());
  if (stream->capture == nullptr) return;
  const std::shared_ptr<Capture> capture = stream->capture;
  capture->invalidated = true;
  if (capture->origin == stream) {
    End(capture);
  } else {
    capture->lengths.erase(stream);
  }
}

cudaError_t ForbidInCapture(const char* call) {
  if (num_active.load() == 0 || thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(Mutex());
  bool forbidden = false;
  for (const auto& capture : Active()) {
    const bool mine = capture->owner == std::this_thread::get_id();
    const bool global =
        capture->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (capture->mode == cudaStreamCaptureModeRelaxed || (!mine && !global)) continue;
    capture->invalidated = true;
    forbidden = true;
  }
  if (!forbidden) return cudaSuccess;
  return Refuse(cudaErrorStreamCaptureUnsupported,
                std::string(call) + " is not permitted while a stream captures");
}

}  // namespace cuda_emulation

using cuda_emulation::Capture;
using cuda_emulation::CheckStream;
using cuda_emulation::Refuse;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  CUDA_EMULATION_ENTER(cudaStreamBeginCapture);
  if (const cudaError_t error = CheckStream(stream, "cudaStreamBeginCapture");
      error != cudaSuccess) {
    return error;
  }
  const std::lock_guard lock(cuda_emulation::Mutex());
  if (stream->capture != nullptr) {
    return Refuse(cudaErrorIllegalState, "cudaStreamBeginCapture: the stream captures already");
  }
  auto capture = std::make_shared<Capture>(
      Capture{.mode = mode, .owner = std::this_thread::get_id(), .origin = stream});
  capture->lengths[stream] = 0;
  stream->capture = capture;
  stream->clock[stream] = 0;
  cuda_emulation::Active().push_back(std::move(capture));
  ++cuda_emulation::num_active;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  CUDA_EMULATION_ENTER(cudaStreamEndCapture);
  if (const cudaError_t error = CheckStream(stream, "cudaStreamEndCapture"); error != cudaSuccess) {
    return error;
  }
  const std::lock_guard lock(cuda_emulation::Mutex());
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) {
    return Refuse(cudaErrorIllegalState, "cudaStreamEndCapture: the stream does not capture");
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->owner != std::this_thread::get_id()) {
    return Refuse(cudaErrorStreamCaptureWrongThread,
                  "cudaStreamEndCapture: another thread began the capture");
  }
  if (capture->origin != stream) {
    capture->invalidated = true;
    return Refuse(cudaErrorStreamCaptureUnmatched,
                  "cudaStreamEndCapture: the capture began in another stream");
  }
  const bool joined = cuda_emulation::Joined(*capture);
  cuda_emulation::End(capture);
  if (capture->invalidated) {
    return Refuse(cudaErrorStreamCaptureInvalidated,
                  "cudaStreamEndCapture: a call during the capture was not permitted");
  }
  if (!joined) {
    return Refuse(cudaErrorStreamCaptureUnjoined,
                  "cudaStreamEndCapture: a stream was forked and not joined again");
  }
  *graph = cuda_emulation::NewGraph(std::move(capture->operations));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  CUDA_EMULATION_ENTER(cudaStreamIsCapturing);
  if (const cudaError_t error = CheckStream(stream, "cudaStreamIsCapturing");
      error != cudaSuccess) {
    return error;
  }
  const std::lock_guard lock(cuda_emulation::Mutex());
  *status = stream->capture == nullptr     ? cudaStreamCaptureStatusNone
            : stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  CUDA_EMULATION_ENTER(cudaThreadExchangeStreamCaptureMode);
  std::swap(*mode, cuda_emulation::thread_mode);
  return cudaSuccess;
}

}  // extern "C"
