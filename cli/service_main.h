#pragma once
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton::cli {

// A long-running process as its main thread sees it.
struct Service {
  std::function<bool()> ready;
  // OK, or why it cannot go on; null: it always can.
  std::function<absl::Status()> failure;
  // Ports and the like, reported to a supervisor once ready.
  std::function<std::map<std::string, std::string>()> describe;
  // Takes nothing new and lets what runs finish until the deadline; true when all did.
  std::function<bool(absl::Time deadline)> drain;
  absl::Duration drain_timeout;
};

// Blocks SIGINT and SIGTERM in this and every later thread; call before the first thread starts.
// Also ignores SIGPIPE and asks to be told when a supervisor dies.
void PrepareServiceProcess();

// Waits for SIGINT or SIGTERM, then drains; a second signal ends the process at once. Reports
// readiness when it comes. A failure of the service is logged and ends it at once. Returns the exit
// code: 0, or 1 when the drain ran out of time or the service failed.
int RunUntilSignal(const Service& service);

}  // namespace baton::cli
