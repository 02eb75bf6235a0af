#pragma once
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace baton::testing {

// Calls `condition` every few milliseconds until it is true or `patience` is over; its last value.
// For what only another process can make true; within a process wait on a queue or notification.
template <class Condition>
bool WaitFor(Condition condition, absl::Duration patience = absl::Seconds(30)) {
  const absl::Time deadline = absl::Now() + patience;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

}  // namespace baton::testing
