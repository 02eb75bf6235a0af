#include "prefill_worker/prefill_table.h"

#include <algorithm>

namespace baton::prefill_worker {
namespace {

void SortByArrival(std::vector<PrefillRequest*>& requests) {
  std::sort(requests.begin(), requests.end(),
            [](const auto* a, const auto* b) { return a->number < b->number; });
}

}  // namespace

PrefillRequest& PrefillTable::Add(std::unique_ptr<PrefillRequest> request) {
  PrefillRequest& added = *request;
  requests_.emplace(added.number, std::move(request));
  by_key_.emplace(added.key, &added);
  waiting_.insert(&added);
  if (added.deadline != absl::InfiniteFuture()) deadlines_.emplace(added.deadline, added.number);
  return added;
}

void PrefillTable::Leave(PrefillRequest& request) {
  if (request.phase == PrefillPhase::kWaiting) waiting_.erase(&request);
  if (request.phase == PrefillPhase::kAdmitted) admitted_.erase(&request);
}

void PrefillTable::Enter(PrefillRequest& request, PrefillPhase phase) {
  Leave(request);
  request.phase = phase;
  if (phase == PrefillPhase::kWaiting) waiting_.insert(&request);
  if (phase == PrefillPhase::kAdmitted) {
    admitted_.insert(&request);
    by_transfer_.emplace(request.transfer, &request);
  }
  if (phase == PrefillPhase::kAbandoned) {
    by_key_.erase(request.key);
    deadlines_.erase({request.deadline, request.number});
  }
}

void PrefillTable::Remove(PrefillRequest& request) {
  Leave(request);
  if (request.phase != PrefillPhase::kAbandoned) {
    by_key_.erase(request.key);
    deadlines_.erase({request.deadline, request.number});
  }
  if (request.phase != PrefillPhase::kWaiting) by_transfer_.erase(request.transfer);
  requests_.erase(request.number);
}

PrefillRequest* PrefillTable::Find(const worker::RequestKey& key) const {
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? nullptr : it->second;
}

PrefillRequest* PrefillTable::FindTransfer(std::uint64_t transfer) const {
  const auto it = by_transfer_.find(transfer);
  return it == by_transfer_.end() ? nullptr : it->second;
}

std::vector<PrefillRequest*> PrefillTable::Live() const {
  std::vector<PrefillRequest*> live;
  for (const auto& [key, request] : by_key_) live.push_back(request);
  SortByArrival(live);
  return live;
}

std::vector<PrefillRequest*> PrefillTable::OfSession(worker::SessionKey session) const {
  std::vector<PrefillRequest*> found;
  for (const auto& [key, request] : by_key_) {
    if (key.session == session) found.push_back(request);
  }
  SortByArrival(found);
  return found;
}

std::vector<PrefillRequest*> PrefillTable::Due(absl::Time now) const {
  std::vector<PrefillRequest*> due;
  for (const auto& [deadline, number] : deadlines_) {
    if (deadline > now) break;
    due.push_back(requests_.at(number).get());
  }
  return due;
}

int PrefillTable::num_blocks() const {
  int total = 0;
  for (const auto& [number, request] : requests_) total += request->blocks.size();
  return total;
}

}  // namespace baton::prefill_worker
