#include "kvtransfer/cuda/nccl_channel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::kvtransfer::cuda {

PairSet::~PairSet() { Abort(); }

absl::Status PairSet::Open(RankPair ranks, const ncclUniqueId& id) {
  const bool sends = role_ == NcclPair::Role::kSender;
  const int own_rank = sends ? ranks.source : ranks.destination;
  if (!shared_.budget.Acquire(1)) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("too many NCCL pairs are open: %d", shared_.budget.max_pairs()));
  }
  NcclPair::Options options = options_.pair;
  options.device = options_.ranks[own_rank].device;
  auto pair = NcclPair::Start(options, role_, id, shared_.resources);
  if (!pair.ok()) {
    shared_.budget.Release(1);
    return Annotate(pair.status(),
                    absl::StrCat("NCCL pair of ranks ", ranks.source, " and ", ranks.destination));
  }
  pairs_[ranks] = *std::move(pair);
  if (shared_.metrics != nullptr) shared_.metrics->pairs_open.Add(1);
  return absl::OkStatus();
}

NcclPair* PairSet::Find(RankPair ranks) const {
  const auto it = pairs_.find(ranks);
  return it == pairs_.end() ? nullptr : it->second.get();
}

bool PairSet::AllConnected() const {
  for (const auto& [ranks, pair] : pairs_) {
    if (!pair->connected()) return false;
  }
  return true;
}

absl::Status PairSet::Poll() {
  std::size_t bytes = 0;
  for (const auto& [ranks, pair] : pairs_) {
    if (absl::Status status = pair->Poll(); !status.ok()) {
      return Annotate(
          status, absl::StrCat("NCCL pair of ranks ", ranks.source, " and ", ranks.destination));
    }
    if (pair->connected()) bytes += pair->memory_bytes();
  }
  if (shared_.metrics != nullptr && bytes != counted_bytes_) {
    shared_.metrics->memory_bytes.Add(static_cast<double>(bytes) -
                                      static_cast<double>(counted_bytes_));
    counted_bytes_ = bytes;
  }
  return absl::OkStatus();
}

std::vector<gpu::Doomed> PairSet::TakeForReaper() {
  std::vector<gpu::Doomed> doomed;
  for (const auto& [ranks, pair] : pairs_) doomed.push_back(pair->TakeForReaper());
  return doomed;
}

void PairSet::Forget() {
  shared_.budget.Release(static_cast<int>(pairs_.size()));
  if (shared_.metrics != nullptr) {
    shared_.metrics->pairs_open.Add(-static_cast<double>(pairs_.size()));
    shared_.metrics->memory_bytes.Add(-static_cast<double>(counted_bytes_));
  }
  counted_bytes_ = 0;
  pairs_.clear();
}

void PairSet::Abort() {
  if (pairs_.empty()) return;
  if (shared_.metrics != nullptr) {
    shared_.metrics->aborts.Add(static_cast<double>(pairs_.size()));
  }
  shared_.reaper.Abort(TakeForReaper());
  Forget();
}

void PairSet::Finish() {
  if (pairs_.empty()) return;
  shared_.reaper.Finish(TakeForReaper());
  Forget();
}

}  // namespace baton::kvtransfer::cuda
