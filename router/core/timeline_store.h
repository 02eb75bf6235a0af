#pragma once
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "router/core/timeline.h"

namespace baton::router {

// The timelines of the last `capacity` sequences, for /debug/requests/ID. Thread-safe.
class TimelineStore {
 public:
  explicit TimelineStore(std::size_t capacity) : capacity_(capacity) {}

  // Adds a record, or replaces the one of the same sequence id.
  void Put(const SequenceRecord& record);

  // A request's sequences in the order of their choices; empty when unknown or too old.
  std::vector<SequenceRecord> Find(std::string_view request_id) const;

 private:
  const std::size_t capacity_;
  mutable absl::Mutex mutex_;
  // By request id, then in order of arrival; `order_` says which sequence is the oldest.
  absl::flat_hash_map<std::string, std::vector<SequenceRecord>> requests_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<std::string, std::string>> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
