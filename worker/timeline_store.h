#pragma once
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "session/messages.h"

namespace baton::worker {

// When a phase of a request began; it lasts until the next mark, so the phases of an ended request
// add up to its time on this worker.
struct TimelineMark {
  std::string phase;  // "queued", "computing", ...
  absl::Time at;
};

struct Timeline {
  std::string request_id;
  int prompt_tokens = 0;
  int output_tokens = 0;
  std::vector<TimelineMark> marks;  // the first is the arrival
  absl::Time ended = absl::InfiniteFuture();
  std::string outcome;  // empty while it runs; "finished", "cancelled", or an error's text
  session::PhaseTimes times;
};

// The latest requests of this process with when each phase began, for /debug/requests/ID. Keeps
// `capacity` of them, dropping the oldest. Calls for unknown ids do nothing. Thread-safe; O(1).
class TimelineStore {
 public:
  explicit TimelineStore(std::size_t capacity) : capacity_(capacity) {}

  // A later request with the same id replaces the earlier one.
  void Begin(const std::string& request_id, int prompt_tokens, std::string_view phase,
             absl::Time at);
  void Mark(const std::string& request_id, std::string_view phase, absl::Time at);
  void SetTimes(const std::string& request_id, const session::PhaseTimes& times);
  void End(const std::string& request_id, std::string_view outcome, int output_tokens,
           absl::Time at);

  std::optional<Timeline> Find(const std::string& request_id) const;
  std::size_t size() const;

 private:
  const std::size_t capacity_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Timeline> timelines_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> order_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

// {"request_id": ..., "phases": [{"phase", "start_seconds", "seconds"}...], "total_seconds", ...};
// a running request's last phase lasts until `now`.
std::string TimelineToJson(const Timeline& timeline, absl::Time now);

}  // namespace baton::worker
