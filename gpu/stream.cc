#include "gpu/stream.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gpu/status.h"

namespace baton::gpu {

absl::StatusOr<Stream> Stream::Create() {
  cudaStream_t stream = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::StatusOr<Event> Event::Create() {
  cudaEvent_t event = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

absl::Status Event::Record(cudaStream_t stream) const {
  return ToStatus(cudaEventRecord(event_, stream), "cudaEventRecord");
}

absl::Status Event::Await(absl::Time deadline) const {
  // Steps last from tens of microseconds to seconds: first look without pause, then leave the core
  // to others.
  constexpr int kLooks = 200;
  for (int look = 0;; ++look) {
    const cudaError_t error = cudaEventQuery(event_);
    if (error != cudaErrorNotReady) return ToStatus(error, "cudaEventQuery");
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError("the device did not finish its work in time");
    }
    if (look < kLooks) {
      std::this_thread::yield();
    } else {
      absl::SleepFor(absl::Microseconds(20));
    }
  }
}

}  // namespace baton::gpu
