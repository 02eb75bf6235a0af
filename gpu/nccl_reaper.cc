#include "gpu/nccl_reaper.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "common/check.h"
#include "common/log.h"

namespace baton::gpu {
namespace {

constexpr absl::Duration kPoll = absl::Microseconds(200);

ncclResult_t StateOf(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  return asked == ncclSuccess ? state : asked;
}

// Waits until the communicator is at rest; the caller's deadline ends a wait that does not.
ncclResult_t AwaitRest(ncclComm_t comm) {
  ncclResult_t state = StateOf(comm);
  while (state == ncclInProgress) {
    absl::SleepFor(kPoll);
    state = StateOf(comm);
  }
  return state;
}

void AwaitIdle(const Doomed& doomed) {
  cudaSetDevice(doomed.device);
  // Any other answer is an error of the whole device, which runs nothing more then.
  while (cudaStreamQuery(doomed.stream) == cudaErrorNotReady) absl::SleepFor(kPoll);
}

void AbortAll(const std::vector<Doomed>& doomed) {
  std::vector<ncclComm_t> revoked;
  for (const Doomed& one : doomed) {
    // While it initialises there is nothing to revoke, and an abort cannot meet a stuck kernel.
    const bool initialised = StateOf(one.comm) != ncclInProgress;
    const ncclResult_t result =
        initialised ? ncclCommRevoke(one.comm, NCCL_REVOKE_DEFAULT) : ncclInvalidUsage;
    if (result == ncclSuccess || result == ncclInProgress) revoked.push_back(one.comm);
  }
  for (const ncclComm_t comm : revoked) AwaitRest(comm);
  for (const Doomed& one : doomed) {
    const ncclResult_t result = ncclCommAbort(one.comm);
    BATON_CHECK(result == ncclSuccess || result == ncclInProgress,
                "NCCL refuses to abort a communicator, which may still write to memory");
  }
  for (const Doomed& one : doomed) AwaitIdle(one);
}

void FinishAll(const std::vector<Doomed>& doomed) {
  for (const Doomed& one : doomed) {
    const ncclResult_t result = ncclCommFinalize(one.comm);
    const bool finalized = (result == ncclSuccess || result == ncclInProgress) &&
                           AwaitRest(one.comm) == ncclSuccess &&
                           ncclCommDestroy(one.comm) == ncclSuccess;
    if (!finalized) AbortAll({one});
  }
}

void EndProcess(const std::string& what) {
  log::Error("NCCL cannot be ended; the process stops so that no memory it uses is reused",
             {{"error", what}});
  CheckFailed(__FILE__, __LINE__, "NCCL is silent", what.c_str());
}

}  // namespace

void NcclReaper::RunWithDeadline(std::function<void()> work, const std::string& what) const {
  const auto done = std::make_shared<absl::Notification>();
  std::thread thread([work = std::move(work), done] {
    work();
    done->Notify();
  });
  if (!done->WaitForNotificationWithTimeout(options_.timeout)) {
    const std::string text =
        absl::StrFormat("%s did not end within %s", what, absl::FormatDuration(options_.timeout));
    options_.on_hang ? options_.on_hang(text) : EndProcess(text);
  }
  thread.join();
}

void NcclReaper::Abort(const std::vector<Doomed>& doomed) const {
  if (doomed.empty()) return;
  RunWithDeadline([doomed] { AbortAll(doomed); },
                  absl::StrCat("aborting ", doomed.size(), " NCCL communicators"));
}

void NcclReaper::Finish(const std::vector<Doomed>& doomed) const {
  if (doomed.empty()) return;
  RunWithDeadline([doomed] { FinishAll(doomed); },
                  absl::StrCat("closing ", doomed.size(), " NCCL communicators"));
}

}  // namespace baton::gpu
