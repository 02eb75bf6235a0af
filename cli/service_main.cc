#include "cli/service_main.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "cli/serve/child_process.h"
#include "common/log.h"

namespace baton::cli {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void PrepareServiceProcess() {
  signal(SIGPIPE, SIG_IGN);
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  DieWithSupervisor();
}

int RunUntilSignal(const Service& service) {
  const sigset_t signals = StopSignals();
  bool reported = false;
  for (;;) {
    if (!reported && service.ready()) {
      reported = true;
      log::Info("ready");
      ReportReady(service.describe());
    }
    if (service.failure) {
      if (const absl::Status failure = service.failure(); !failure.ok()) {
        log::Error("cannot go on; leaving", {{"error", failure.ToString()}});
        service.drain(absl::Now());  // tells whoever waits
        return 1;
      }
    }
    // Until ready is reported, look often: it is what a user waits for.
    const absl::Duration look = reported ? absl::Milliseconds(200) : absl::Milliseconds(10);
    const timespec wait = absl::ToTimespec(look);
    if (sigtimedwait(&signals, nullptr, &wait) > 0) break;
  }
  log::Info("draining", {{"timeout", absl::FormatDuration(service.drain_timeout)}});
  std::atomic<bool> drained{false};
  std::thread second_signal([&] {
    const timespec slice = absl::ToTimespec(absl::Milliseconds(50));
    while (!drained) {
      if (sigtimedwait(&signals, nullptr, &slice) > 0) _exit(130);
    }
  });
  const bool finished = service.drain(absl::Now() + service.drain_timeout);
  drained = true;
  second_signal.join();
  if (!finished) log::Warn("drain timed out; unfinished requests were ended");
  return finished ? 0 : 1;
}

}  // namespace baton::cli
