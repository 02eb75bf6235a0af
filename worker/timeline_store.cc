#include "worker/timeline_store.h"

#include <utility>

namespace baton::worker {

void TimelineStore::Begin(const std::string& request_id, int prompt_tokens, std::string_view phase,
                          absl::Time at) {
  Timeline timeline;
  timeline.request_id = request_id;
  timeline.prompt_tokens = prompt_tokens;
  timeline.marks.push_back({std::string(phase), at});
  absl::MutexLock lock(&mutex_);
  const bool is_new = timelines_.insert_or_assign(request_id, std::move(timeline)).second;
  if (!is_new) return;  // it keeps its place in the order
  order_.push_back(request_id);
  if (order_.size() > capacity_) {
    timelines_.erase(order_.front());
    order_.pop_front();
  }
}

void TimelineStore::Mark(const std::string& request_id, std::string_view phase, absl::Time at) {
  absl::MutexLock lock(&mutex_);
  const auto it = timelines_.find(request_id);
  if (it != timelines_.end()) it->second.marks.push_back({std::string(phase), at});
}

void TimelineStore::SetTimes(const std::string& request_id, const session::PhaseTimes& times) {
  absl::MutexLock lock(&mutex_);
  const auto it = timelines_.find(request_id);
  if (it != timelines_.end()) it->second.times = times;
}

void TimelineStore::End(const std::string& request_id, std::string_view outcome, int output_tokens,
                        absl::Time at) {
  absl::MutexLock lock(&mutex_);
  const auto it = timelines_.find(request_id);
  if (it == timelines_.end()) return;
  it->second.outcome = std::string(outcome);
  it->second.output_tokens = output_tokens;
  it->second.ended = at;
}

std::optional<Timeline> TimelineStore::Find(const std::string& request_id) const {
  absl::MutexLock lock(&mutex_);
  const auto it = timelines_.find(request_id);
  if (it == timelines_.end()) return std::nullopt;
  return it->second;
}

std::size_t TimelineStore::size() const {
  absl::MutexLock lock(&mutex_);
  return timelines_.size();
}

}  // namespace baton::worker
