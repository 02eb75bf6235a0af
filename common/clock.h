#pragma once
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace baton {

// Where the cores (schedulers, sessions, router) read the time, so that tests and the simulator can
// drive it. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The machine's clock.
class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace baton
