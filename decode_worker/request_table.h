#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "decode_worker/sequence.h"

namespace baton::decode_worker {

using RankedSet = std::set<Sequence*, RanksBefore>;

// Owns every request of a decode worker and finds it by name, transfer, state or expiry. A request
// is in exactly one state's set. Operations cost O(log n). Not thread-safe.
class RequestTable {
 public:
  // Takes a request in state kWaiting; its key must not be present.
  Sequence& Add(std::unique_ptr<Sequence> sequence);
  // Forgets the request; its blocks go back with the value returned.
  std::unique_ptr<Sequence> Remove(Sequence& sequence);

  Sequence* Find(const worker::RequestKey& key);      // null when absent
  Sequence* FindTransfer(std::uint64_t transfer_id);  // of a receiving request; null when absent
  std::vector<Sequence*> OfSession(const worker::SessionKey& session);
  // The request that expires first, if it does so at or before `now`; else null.
  Sequence* FirstExpired(absl::Time now);
  absl::Time next_expiry() const;  // InfiniteFuture when there is none

  void MoveTo(Sequence& sequence, SequenceState state);
  // Moves to kReceiving under `transfer_id`, which MoveTo to any other state forgets.
  void MoveToReceiving(Sequence& sequence, std::uint64_t transfer_id);
  void SetExpiry(Sequence& sequence, absl::Time expires);

  // Best rank first.
  const RankedSet& in(SequenceState state) const { return sets_[static_cast<std::size_t>(state)]; }
  std::size_t size() const { return sequences_.size(); }
  const RankedSet& all() const { return all_; }

 private:
  RankedSet& set_of(SequenceState state) { return sets_[static_cast<std::size_t>(state)]; }

  absl::flat_hash_map<worker::RequestKey, std::unique_ptr<Sequence>> sequences_;
  absl::flat_hash_map<std::uint64_t, Sequence*> transfers_;
  std::array<RankedSet, kNumSequenceStates> sets_;
  RankedSet all_;
  std::set<std::pair<absl::Time, Sequence*>> expiries_;  // without those that never expire
};

}  // namespace baton::decode_worker
