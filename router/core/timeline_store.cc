#include "router/core/timeline_store.h"

#include <algorithm>

namespace baton::router {

void TimelineStore::Put(const SequenceRecord& record) {
  absl::MutexLock lock(&mutex_);
  std::vector<SequenceRecord>& known = requests_[record.request_id];
  const auto same = std::find_if(known.begin(), known.end(), [&](const SequenceRecord& other) {
    return other.sequence_id == record.sequence_id;
  });
  if (same != known.end()) {
    *same = record;
    return;
  }
  known.push_back(record);
  order_.emplace_back(record.request_id, record.sequence_id);
  while (order_.size() > capacity_) {
    const std::pair<std::string, std::string> oldest = std::move(order_.front());
    order_.pop_front();
    const auto it = requests_.find(oldest.first);
    std::erase_if(it->second,
                  [&](const SequenceRecord& old) { return old.sequence_id == oldest.second; });
    if (it->second.empty()) requests_.erase(it);
  }
}

std::vector<SequenceRecord> TimelineStore::Find(std::string_view request_id) const {
  std::vector<SequenceRecord> found;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = requests_.find(std::string(request_id));
    if (it != requests_.end()) found = it->second;
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.index < b.index; });
  return found;
}

}  // namespace baton::router
