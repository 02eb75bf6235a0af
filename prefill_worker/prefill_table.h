#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "prefill_worker/prefill_request.h"

namespace baton::prefill_worker {

// Where a request stands in line: lower priority values first, then by arrival.
struct PrefillOrder {
  bool operator()(const PrefillRequest* a, const PrefillRequest* b) const {
    return std::pair(a->spec.priority, a->number) < std::pair(b->spec.priority, b->number);
  }
};
using PrefillQueue = std::set<PrefillRequest*, PrefillOrder>;

// Owns every request of a prefill worker and finds it by each of its names; a request's phase is
// changed here only, so that the indices agree with it. O(log n) each. Not thread-safe.
class PrefillTable {
 public:
  // Adds a request in phase kWaiting; its key must not be in the table.
  PrefillRequest& Add(std::unique_ptr<PrefillRequest> request);
  // Moves a request on. kAdmitted: its transfer must be set. kAbandoned: it no longer answers to
  // its key, which may come again, and has no deadline.
  void Enter(PrefillRequest& request, PrefillPhase phase);
  // Forgets a request in any phase and frees its blocks.
  void Remove(PrefillRequest& request);

  // Null when there is none. Abandoned requests are found by their transfer only.
  PrefillRequest* Find(const worker::RequestKey& key) const;
  PrefillRequest* FindTransfer(std::uint64_t transfer) const;
  // Those not abandoned, in order of arrival: all, of one session, or due by `now`.
  std::vector<PrefillRequest*> Live() const;
  std::vector<PrefillRequest*> OfSession(worker::SessionKey session) const;
  std::vector<PrefillRequest*> Due(absl::Time now) const;

  const PrefillQueue& waiting() const { return waiting_; }
  const PrefillQueue& admitted() const { return admitted_; }
  absl::Time next_deadline() const {
    return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
  }
  std::size_t size() const { return requests_.size(); }  // abandoned ones included
  std::size_t num_live() const { return by_key_.size(); }
  // Blocks held by all requests.
  int num_blocks() const;

 private:
  void Leave(PrefillRequest& request);  // the indices of its phase

  absl::flat_hash_map<std::uint64_t, std::unique_ptr<PrefillRequest>> requests_;  // by number
  absl::flat_hash_map<worker::RequestKey, PrefillRequest*> by_key_;
  absl::flat_hash_map<std::uint64_t, PrefillRequest*> by_transfer_;
  PrefillQueue waiting_;
  PrefillQueue admitted_;
  std::set<std::pair<absl::Time, std::uint64_t>> deadlines_;  // finite ones, with the number
};

}  // namespace baton::prefill_worker
