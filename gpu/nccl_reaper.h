#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton::gpu {

// A communicator to end, and the stream that its operations were given to.
struct Doomed {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int device = 0;
};

// Ends communicators, in health or not. An abort may hang when another stuck kernel occupies the
// device (NVIDIA/nccl issues 549, 829, 1013), so it runs on a thread of its own under a deadline:
// all communicators are revoked first, which only raises flags, then waited for, then destroyed;
// at last the streams drain: what was queued behind an operation runs when that is broken off.
//
// If the deadline passes, nobody can prove any more that the device is done with the memory that
// it was given. It must not be reused, so the process has to end: `on_hang` does that, and returns
// in tests only.
class NcclReaper {
 public:
  struct Options {
    absl::Duration timeout = absl::Seconds(10);
    std::function<void(const std::string& what)> on_hang;  // null: log and abort the process
  };
  explicit NcclReaper(Options options) : options_(std::move(options)) {}

  // Gives up what the communicators do. When it returns they are gone and their streams are idle.
  // No other thread may be inside NCCL with one of them. Thread-safe.
  void Abort(const std::vector<Doomed>& doomed) const;
  // The same for idle communicators of peers that do likewise.
  void Finish(const std::vector<Doomed>& doomed) const;

 private:
  void RunWithDeadline(std::function<void()> work, const std::string& what) const;
  const Options options_;
};

}  // namespace baton::gpu
