#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "cuda_emulation/executor/statistics.h"
#include "cuda_emulation/runtime/capture.h"
#include "cuda_emulation/runtime/devices.h"
#include "cuda_emulation/runtime/graph.h"
#include "cuda_emulation/runtime/stream.h"

namespace cuda_emulation {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Records are counted: to wait for an event is to wait for the record that was its last then.
// Shared with the operations that complete it, so that it may be destroyed before.
struct EventState {
  std::mutex mutex;
  std::condition_variable completion;
  std::uint64_t recorded = 0, completed = 0;
  SteadyClock::time_point completed_at;
  char tag = 0;  // TSan
};

struct Events {
  std::mutex mutex;
  std::set<cudaEvent_t> live;
};
Events& TheEvents() {
  static auto* events = new Events;
  return *events;
}

}  // namespace
}  // namespace cuda_emulation

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<cuda_emulation::EventState> state =
      std::make_shared<cuda_emulation::EventState>();
  cuda_emulation::CapturedPoint captured;  // of the last record
};

namespace cuda_emulation {
namespace {

cudaError_t CheckEvent(cudaEvent_t event, const char* call) {
  const std::lock_guard lock(TheEvents().mutex);
  if (TheEvents().live.contains(event)) return cudaSuccess;
  return Refuse(cudaErrorInvalidResourceHandle, std::string(call) + ": no live event");
}

cudaError_t CreateEvent(cudaEvent_t* event, unsigned flags) {
  auto* made = new CUevent_st{.device = CurrentDevice(), .flags = flags};
  const std::lock_guard lock(TheEvents().mutex);
  TheEvents().live.insert(made);
  *event = made;
  return cudaSuccess;
}

std::uint64_t LastRecord(EventState& state) {
  const std::lock_guard lock(state.mutex);
  return state.recorded;
}

void AwaitRecord(EventState& state, std::uint64_t record) {
  {
    std::unique_lock lock(state.mutex);
    state.completion.wait(lock, [&] { return state.completed >= record; });
  }
  AcquireUnseen(&state.tag);
}

void Complete(EventState& state, std::uint64_t record) {
  ReleaseUnseen(&state.tag);
  const std::lock_guard lock(state.mutex);
  state.completed = record;
  state.completed_at = SteadyClock::now();
  state.completion.notify_all();
}

// For query and synchronisation.
cudaError_t CheckHostMayAsk(cudaEvent_t event, const char* call) {
  if (const cudaError_t error = CheckEvent(event, call); error != cudaSuccess) return error;
  if (event->captured.capture != nullptr) {
    return Refuse(cudaErrorCapturedEvent,
                  std::string(call) + ": the event was last recorded in a capture");
  }
  return ForbidInCapture(call);
}

std::unique_ptr<Operation> WaitingOperation(const char* kind, std::function<void()> run) {
  auto operation = std::make_unique<Operation>();
  operation->kind = kind;
  operation->run = std::move(run);
  operation->always = true;
  return operation;
}

}  // namespace

void CountEvents(LiveObjects& objects) {
  const std::lock_guard lock(TheEvents().mutex);
  objects.events = TheEvents().live.size();
}

}  // namespace cuda_emulation

using cuda_emulation::CheckEvent;
using cuda_emulation::CheckStream;
using cuda_emulation::EventState;
using cuda_emulation::Refuse;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  CUDA_EMULATION_ENTER(cudaEventCreateWithFlags);
  return cuda_emulation::CreateEvent(event, flags);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  CUDA_EMULATION_ENTER(cudaEventCreate);
  return cuda_emulation::CreateEvent(event, cudaEventDefault);
}

// Works on a failed device too: destructors call it.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cuda_emulation::Quiet quiet;
  const cuda_emulation::UnseenLocks unseen;
  if (const cudaError_t error = CheckEvent(event, "cudaEventDestroy"); error != cudaSuccess) {
    return error;
  }
  {
    const std::lock_guard lock(cuda_emulation::TheEvents().mutex);
    cuda_emulation::TheEvents().live.erase(event);
  }
  delete event;
  return cuda_emulation::EnterCall("cudaEventDestroy");
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CUDA_EMULATION_ENTER(cudaEventRecord);
  if (const cudaError_t error = CheckEvent(event, "cudaEventRecord"); error != cudaSuccess) {
    return error;
  }
  if (const cudaError_t error = CheckStream(stream, "cudaEventRecord"); error != cudaSuccess) {
    return error;
  }
  if (event->device != stream->queue->device()) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  "cudaEventRecord: the event and the stream are of devices " +
                      std::to_string(event->device) + " and " +
                      std::to_string(stream->queue->device()));
  }
  event->captured = cuda_emulation::PointOf(stream);
  if (event->captured.capture != nullptr) return cudaSuccess;
  const std::shared_ptr<EventState> state = event->state;
  std::uint64_t record = 0;
  {
    const std::lock_guard lock(state->mutex);
    record = ++state->recorded;
  }
  return cuda_emulation::Submit(
      stream, cuda_emulation::WaitingOperation("cudaEventRecord", [state, record] {
        cuda_emulation::Complete(*state, record);
      }));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  CUDA_EMULATION_ENTER(cudaStreamWaitEvent);
  if (const cudaError_t error = CheckEvent(event, "cudaStreamWaitEvent"); error != cudaSuccess) {
    return error;
  }
  if (const cudaError_t error = CheckStream(stream, "cudaStreamWaitEvent"); error != cudaSuccess) {
    return error;
  }
  bool handled = false;
  const cudaError_t error = cuda_emulation::JoinCapture(stream, event->captured, handled);
  if (error != cudaSuccess || handled) return error;
  const std::shared_ptr<EventState> state = event->state;
  const std::uint64_t record = cuda_emulation::LastRecord(*state);
  return cuda_emulation::Submit(
      stream, cuda_emulation::WaitingOperation("cudaStreamWaitEvent", [state, record] {
        cuda_emulation::AwaitRecord(*state, record);
      }));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  CUDA_EMULATION_ENTER(cudaEventSynchronize);
  if (const cudaError_t error = cuda_emulation::CheckHostMayAsk(event, "cudaEventSynchronize");
      error != cudaSuccess) {
    return error;
  }
  ++cuda_emulation::TheStatistics().host_waits;
  cuda_emulation::AwaitRecord(*event->state, cuda_emulation::LastRecord(*event->state));
  return cuda_emulation::StickyError(event->device);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  CUDA_EMULATION_ENTER(cudaEventQuery);
  if (const cudaError_t error = cuda_emulation::CheckHostMayAsk(event, "cudaEventQuery");
      error != cudaSuccess) {
    return error;
  }
  EventState& state = *event->state;
  {
    const std::lock_guard lock(state.mutex);
    if (state.completed < state.recorded) return cudaErrorNotReady;
  }
  cuda_emulation::AcquireUnseen(&state.tag);
  return cuda_emulation::StickyError(event->device);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  CUDA_EMULATION_ENTER(cudaEventElapsedTime);
  for (const cudaEvent_t event : {begin, end}) {
    if (const cudaError_t error = CheckEvent(event, "cudaEventElapsedTime"); error != cudaSuccess) {
      return error;
    }
    const std::lock_guard lock(event->state->mutex);
    if ((event->flags & cudaEventDisableTiming) != 0 || event->state->recorded == 0) {
      return Refuse(cudaErrorInvalidResourceHandle,
                    "cudaEventElapsedTime: an event without timing, or never recorded");
    }
    if (event->state->completed < event->state->recorded) return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->state->completed_at -
                                                           begin->state->completed_at)
                      .count();
  return cudaSuccess;
}

}  // extern "C"
