#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#include "absl/status/statusor.h"
#include "gpu/stream.h"

namespace baton::bench {

// Times work on one stream of the device with CUDA events, so that launches and the host are not in
// the figure as long as the host keeps ahead. Not thread-safe.
class DeviceTimer {
 public:
  struct Options {
    int repeats = 9;        // measurements; the median counts
    double seconds = 0.02;  // a measurement is at least so long, as many runs as that takes
  };
  static absl::StatusOr<DeviceTimer> Create(const Options& options);
  DeviceTimer(DeviceTimer&&) noexcept;
  DeviceTimer& operator=(DeviceTimer&&) noexcept = delete;
  ~DeviceTimer();

  // The median seconds of one `run`, which enqueues on `stream()`. One run before goes uncounted.
  // Waits at most a minute for the device.
  absl::StatusOr<double> Time(const std::function<absl::Status()>& run);
  cudaStream_t stream() const { return stream_.get(); }

 private:
  DeviceTimer(const Options& options, gpu::Stream stream, cudaEvent_t begin, cudaEvent_t end);
  absl::StatusOr<double> TimeRuns(const std::function<absl::Status()>& run, int count);
  Options options_;
  gpu::Stream stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace baton::bench
