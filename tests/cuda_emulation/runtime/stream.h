#pragma once
#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace cuda_emulation {

struct Capture;

// Something a stream does. `kind` and `subject` (a kernel's address) tell a graph update whether
// two graphs are alike.
struct Operation {
  const char* kind = "";
  const void* subject = nullptr;
  std::function<void()> run;  // on the stream's OS thread, device memory reachable
  bool always = false;        // runs even after the device has failed
  char issue_tag = 0;         // TSan: what the host did before it enqueued this
};

// The operations of one stream, which one OS thread does in order. Outlives its handle until the
// last operation is done, as on a device.
class StreamQueue : public std::enable_shared_from_this<StreamQueue> {
 public:
  explicit StreamQueue(int device) : device_(device) {}
  // Starts the OS thread.
  void Start();
  // After the last operation the thread ends.
  void Close();
  void Push(std::unique_ptr<Operation> operation);
  // Waits until all that is enqueued now and later is done.
  void AwaitIdle();
  bool IsIdle();
  int device() const { return device_; }

 private:
  void Main();
  const int device_;
  std::mutex mutex_;
  std::condition_variable pushed_, idle_;
  std::deque<std::unique_ptr<Operation>> operations_;
  bool busy_ = false, closed_ = false;
  char done_tag_ = 0;  // TSan: what the stream did so far
};

// How much of each stream of a capture something comes after.
using CaptureClock = std::map<cudaStream_t, std::uint64_t>;

}  // namespace cuda_emulation

// CUDA's handle. The capture fields belong to capture.cc.
struct CUstream_st {
  std::shared_ptr<cuda_emulation::StreamQueue> queue;
  unsigned flags = 0;
  int priority = 0;
  std::shared_ptr<cuda_emulation::Capture> capture;  // null: does not capture
  cuda_emulation::CaptureClock clock;
};

namespace cuda_emulation {

// cudaSuccess for a live stream of our own; the NULL stream and destroyed ones are refused.
cudaError_t CheckStream(cudaStream_t stream, const char* call);

// Enqueues, or captures while the stream captures. The stream has been checked.
cudaError_t Submit(cudaStream_t stream, std::unique_ptr<Operation> operation);

// Waits for every stream of the device.
void AwaitDevice(int device);
// The same for those that do not refuse to be waited for by the NULL stream.
void AwaitBlockingStreams(int device);

}  // namespace cuda_emulation
