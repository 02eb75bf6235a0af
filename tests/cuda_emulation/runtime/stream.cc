#include "cuda_emulation/runtime/stream.h"

#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_emulation/executor/statistics.h"
#include "cuda_emulation/runtime/capture.h"
#include "cuda_emulation/runtime/devices.h"
#include "cuda_emulation/runtime/graph.h"
#include "cuda_emulation/runtime/memory.h"

namespace cuda_emulation {
namespace {

struct Streams {
  std::mutex mutex;
  std::set<cudaStream_t> live;
  // Of destroyed streams, whose work goes on: the device is not idle before it is done.
  std::vector<std::weak_ptr<StreamQueue>> closed;
};
Streams& TheStreams() {
  static auto* streams = new Streams;
  return *streams;
}

std::vector<std::shared_ptr<StreamQueue>> QueuesOf(int device, bool blocking_only) {
  std::vector<std::shared_ptr<StreamQueue>> queues;
  const std::lock_guard lock(TheStreams().mutex);
  for (const cudaStream_t stream : TheStreams().live) {
    if (stream->queue->device() != device) continue;
    if (blocking_only && (stream->flags & cudaStreamNonBlocking) != 0) continue;
    queues.push_back(stream->queue);
  }
  std::erase_if(TheStreams().closed, [](const auto& queue) { return queue.expired(); });
  for (const auto& closed : TheStreams().closed) {
    auto queue = closed.lock();
    if (queue != nullptr && queue->device() == device && !blocking_only) queues.push_back(queue);
  }
  return queues;
}

cudaError_t CreateStream(cudaStream_t* stream, unsigned flags, int priority) {
  auto* made = new CUstream_st;
  made->queue = std::make_shared<StreamQueue>(CurrentDevice());
  made->flags = flags;
  made->priority = priority;
  made->queue->Start();
  const std::lock_guard lock(TheStreams().mutex);
  TheStreams().live.insert(made);
  *stream = made;
  return cudaSuccess;
}

}  // namespace

void StreamQueue::Start() {
  // Detached: a stream may be destroyed while an operation that will never end is under way.
  SeenLocks seen;  // a thread comes after its creation
  std::thread([self = shared_from_this()] { self->Main(); }).detach();
}

void StreamQueue::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  pushed_.notify_all();
}

void StreamQueue::Push(std::unique_ptr<Operation> operation) {
  ReleaseUnseen(&operation->issue_tag);
  const std::lock_guard lock(mutex_);
  operations_.push_back(std::move(operation));
  pushed_.notify_one();
}

void StreamQueue::AwaitIdle() {
  ++TheStatistics().host_waits;
  {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return operations_.empty() && !busy_; });
  }
  AcquireUnseen(&done_tag_);
}

bool StreamQueue::IsIdle() {
  {
    const std::lock_guard lock(mutex_);
    if (!operations_.empty() || busy_) return false;
  }
  AcquireUnseen(&done_tag_);
  return true;
}

void StreamQueue::Main() {
  Quiet quiet;
  UnseenLocks unseen;
  std::unique_lock lock(mutex_);
  for (;;) {
    pushed_.wait(lock, [this] { return closed_ || !operations_.empty(); });
    if (operations_.empty()) return;
    std::unique_ptr<Operation> operation = std::move(operations_.front());
    operations_.pop_front();
    busy_ = true;
    lock.unlock();
    AcquireUnseen(&operation->issue_tag);
    if (operation->always || StickyError(device_) == cudaSuccess) operation->run();
    operation.reset();
    ReleaseUnseen(&done_tag_);
    lock.lock();
    busy_ = false;
    if (operations_.empty()) idle_.notify_all();
  }
}

cudaError_t CheckStream(cudaStream_t stream, const char* call) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  std::string(call) + ": the NULL stream waits for others; use one of your own");
  }
  const std::lock_guard lock(TheStreams().mutex);
  if (TheStreams().live.contains(stream)) return cudaSuccess;
  return Refuse(cudaErrorInvalidResourceHandle, std::string(call) + ": no live stream");
}

cudaError_t Submit(cudaStream_t stream, std::unique_ptr<Operation> operation) {
  bool captured = false;
  const cudaError_t error = CaptureOperation(stream, operation, captured);
  if (error != cudaSuccess || captured) return error;
  stream->queue->Push(std::move(operation));
  return cudaSuccess;
}

cudaError_t SubmitToStream(cudaStream_t stream, std::function<void()> run, const char* kind) {
  Quiet quiet;
  UnseenLocks unseen;
  if (const cudaError_t error = CheckStream(stream, kind); error != cudaSuccess) return error;
  auto operation = std::make_unique<Operation>();
  operation->kind = kind;
  operation->always = true;
  operation->run = [run = std::move(run)] {
    DeviceAccess access;
    SeenLocks seen;
    Loud loud;
    run();
  };
  return Submit(stream, std::move(operation));
}

int DeviceOfStream(cudaStream_t stream) {
  const std::lock_guard lock(TheStreams().mutex);
  return TheStreams().live.contains(stream) ? stream->queue->device() : -1;
}

void AwaitDevice(int device) {
  for (const auto& queue : QueuesOf(device, false)) queue->AwaitIdle();
}
void AwaitBlockingStreams(int device) {
  for (const auto& queue : QueuesOf(device, true)) queue->AwaitIdle();
}

void CountStreams(LiveObjects& objects) {
  const std::lock_guard lock(TheStreams().mutex);
  objects.streams = TheStreams().live.size();
}

}  // namespace cuda_emulation

using cuda_emulation::CheckStream;
using cuda_emulation::CurrentDevice;
using cuda_emulation::Refuse;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  CUDA_EMULATION_ENTER(cudaStreamCreateWithPriority);
  return cuda_emulation::CreateStream(stream, flags, priority);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  CUDA_EMULATION_ENTER(cudaStreamCreateWithFlags);
  return cuda_emulation::CreateStream(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  CUDA_EMULATION_ENTER(cudaStreamCreate);
  return cuda_emulation::CreateStream(stream, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  CUDA_EMULATION_ENTER(cudaDeviceGetStreamPriorityRange);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

// Works on a failed device too: destructors call it.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cuda_emulation::Quiet quiet;
  const cuda_emulation::UnseenLocks unseen;
  if (const cudaError_t error = CheckStream(stream, "cudaStreamDestroy"); error != cudaSuccess) {
    return error;
  }
  cuda_emulation::LeaveCapture(stream);
  {
    const std::lock_guard lock(cuda_emulation::TheStreams().mutex);
    cuda_emulation::TheStreams().live.erase(stream);
    cuda_emulation::TheStreams().closed.push_back(stream->queue);
  }
  stream->queue->Close();
  delete stream;
  return cuda_emulation::EnterCall("cudaStreamDestroy");
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUDA_EMULATION_ENTER(cudaStreamSynchronize);
  if (const cudaError_t error = CheckStream(stream, "cudaStreamSynchronize");
      error != cudaSuccess) {
    return error;
  }
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaStreamSynchronize);
  const int device = stream->queue->device();
  stream->queue->AwaitIdle();
  const cudaError_t sticky = cuda_emulation::StickyError(device);
  return sticky == cudaSuccess ? sticky : Refuse(sticky, cuda_emulation::LastMessage());
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CUDA_EMULATION_ENTER(cudaStreamQuery);
  if (const cudaError_t error = CheckStream(stream, "cudaStreamQuery"); error != cudaSuccess) {
    return error;
  }
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaStreamQuery);
  if (!stream->queue->IsIdle()) return cudaErrorNotReady;
  return cuda_emulation::StickyError(stream->queue->device());
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  CUDA_EMULATION_ENTER(cudaStreamGetDevice);
  if (const cudaError_t error = CheckStream(stream, "cudaStreamGetDevice"); error != cudaSuccess) {
    return error;
  }
  *device = stream->queue->device();
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  CUDA_EMULATION_ENTER(cudaDeviceSynchronize);
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaDeviceSynchronize);
  cuda_emulation::AwaitDevice(CurrentDevice());
  const cudaError_t sticky = cuda_emulation::StickyError(CurrentDevice());
  return sticky == cudaSuccess ? sticky : Refuse(sticky, cuda_emulation::LastMessage());
}

// A host function sees and makes order like any other code of its thread.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  // Not a Call: SubmitToStream hides locks by itself, and twice would hide the order too.
  if (const cudaError_t error = cuda_emulation::EnterCall("cudaLaunchHostFunc");
      error != cudaSuccess) {
    return error;
  }
  return cuda_emulation::SubmitToStream(
      stream, [function, data] { function(data); }, "cudaLaunchHostFunc");
}

}  // extern "C"
