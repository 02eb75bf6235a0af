#include "decode_worker/request_table.h"

#include "common/check.h"

namespace baton::decode_worker {

Sequence& RequestTable::Add(std::unique_ptr<Sequence> sequence) {
  BATON_CHECK(sequence->state == SequenceState::kWaiting, "a new request holds nothing yet");
  Sequence& added = *sequence;
  const bool is_new = sequences_.emplace(added.key, std::move(sequence)).second;
  BATON_CHECK(is_new, "a request id is in use on its session");
  set_of(added.state).insert(&added);
  all_.insert(&added);
  if (added.expires != absl::InfiniteFuture()) expiries_.emplace(added.expires, &added);
  return added;
}

std::unique_ptr<Sequence> RequestTable::Remove(Sequence& sequence) {
  set_of(sequence.state).erase(&sequence);
  all_.erase(&sequence);
  expiries_.erase({sequence.expires, &sequence});
  if (sequence.state == SequenceState::kReceiving) transfers_.erase(sequence.transfer_id);
  const auto it = sequences_.find(sequence.key);
  BATON_CHECK(it != sequences_.end(), "a request is removed once");
  std::unique_ptr<Sequence> removed = std::move(it->second);
  sequences_.erase(it);
  return removed;
}

Sequence* RequestTable::Find(const worker::RequestKey& key) {
  const auto it = sequences_.find(key);
  return it == sequences_.end() ? nullptr : it->second.get();
}

Sequence* RequestTable::FindTransfer(std::uint64_t transfer_id) {
  const auto it = transfers_.find(transfer_id);
  return it == transfers_.end() ? nullptr : it->second;
}

std::vector<Sequence*> RequestTable::OfSession(const worker::SessionKey& session) {
  std::vector<Sequence*> found;
  for (Sequence* sequence : all_) {
    if (sequence->key.session == session) found.push_back(sequence);
  }
  return found;
}

Sequence* RequestTable::FirstExpired(absl::Time now) {
  if (expiries_.empty() || expiries_.begin()->first > now) return nullptr;
  return expiries_.begin()->second;
}

absl::Time RequestTable::next_expiry() const {
  return expiries_.empty() ? absl::InfiniteFuture() : expiries_.begin()->first;
}

void RequestTable::MoveTo(Sequence& sequence, SequenceState state) {
  if (sequence.state == SequenceState::kReceiving) transfers_.erase(sequence.transfer_id);
  set_of(sequence.state).erase(&sequence);
  sequence.state = state;
  set_of(state).insert(&sequence);
}

void RequestTable::MoveToReceiving(Sequence& sequence, std::uint64_t transfer_id) {
  MoveTo(sequence, SequenceState::kReceiving);
  sequence.transfer_id = transfer_id;
  transfers_[transfer_id] = &sequence;
}

void RequestTable::SetExpiry(Sequence& sequence, absl::Time expires) {
  expiries_.erase({sequence.expires, &sequence});
  sequence.expires = expires;
  if (expires != absl::InfiniteFuture()) expiries_.emplace(expires, &sequence);
}

}  // namespace baton::decode_worker
