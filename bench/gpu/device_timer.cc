#include "bench/gpu/device_timer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/status.h"
#include "gpu/status.h"

namespace baton::bench {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);

}  // namespace

DeviceTimer::DeviceTimer(const Options& options, gpu::Stream stream, cudaEvent_t begin,
                         cudaEvent_t end)
    : options_(options), stream_(std::move(stream)), begin_(begin), end_(end) {}

DeviceTimer::DeviceTimer(DeviceTimer&& other) noexcept
    : options_(other.options_),
      stream_(std::move(other.stream_)),
      begin_(std::exchange(other.begin_, nullptr)),
      end_(std::exchange(other.end_, nullptr)) {}

DeviceTimer::~DeviceTimer() {
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
}

absl::StatusOr<DeviceTimer> DeviceTimer::Create(const Options& options) {
  BATON_ASSIGN_OR_RETURN(gpu::Stream stream, gpu::Stream::Create());
  DeviceTimer timer(options, std::move(stream), nullptr, nullptr);
  BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&timer.begin_));
  BATON_CUDA_RETURN_IF_ERROR(cudaEventCreate(&timer.end_));
  return timer;
}

absl::StatusOr<double> DeviceTimer::TimeRuns(const std::function<absl::Status()>& run, int count) {
  BATON_CUDA_RETURN_IF_ERROR(cudaEventRecord(begin_, stream()));
  for (int i = 0; i < count; ++i) BATON_RETURN_IF_ERROR(run());
  BATON_CUDA_RETURN_IF_ERROR(cudaEventRecord(end_, stream()));
  const absl::Time deadline = absl::Now() + kPatience;
  for (cudaError_t state; (state = cudaEventQuery(end_)) != cudaSuccess;) {
    if (state != cudaErrorNotReady) return gpu::ToStatus(state, "cudaEventQuery");
    if (absl::Now() > deadline) return absl::DeadlineExceededError("the device does not finish");
    absl::SleepFor(absl::Microseconds(50));
  }
  float milliseconds = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&milliseconds, begin_, end_));
  return std::max(milliseconds, 1e-6f) / 1000.0 / count;
}

absl::StatusOr<double> DeviceTimer::Time(const std::function<absl::Status()>& run) {
  BATON_ASSIGN_OR_RETURN(const double once, TimeRuns(run, 1));
  const int count = static_cast<int>(std::clamp(options_.seconds / once, 1.0, 2000.0));
  std::vector<double> seconds;
  for (int i = 0; i < options_.repeats; ++i) {
    BATON_ASSIGN_OR_RETURN(const double one, TimeRuns(run, count));
    seconds.push_back(one);
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace baton::bench
