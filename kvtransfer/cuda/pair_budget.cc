#include "kvtransfer/cuda/pair_budget.h"

#include <utility>

namespace baton::kvtransfer::cuda {

PairBudget::Member PairBudget::Join(std::function<void()> close_if_idle) {
  absl::MutexLock lock(&mutex_);
  return members_.insert(members_.end(), std::move(close_if_idle));
}

void PairBudget::Leave(Member member) {
  absl::MutexLock lock(&mutex_);
  members_.erase(member);
}

void PairBudget::Used(Member member) {
  absl::MutexLock lock(&mutex_);
  members_.splice(members_.end(), members_, member);
}

bool PairBudget::Acquire(int count) {
  absl::MutexLock lock(&mutex_);
  if (num_open_ + count > max_pairs_) return false;
  num_open_ += count;
  return true;
}

void PairBudget::MakeRoom() {
  absl::MutexLock lock(&mutex_);
  if (members_.empty()) return;
  members_.front()();
  members_.splice(members_.end(), members_, members_.begin());
}

void PairBudget::Release(int count) {
  absl::MutexLock lock(&mutex_);
  num_open_ -= count;
}

bool PairBudget::HasRoom(int count) const {
  absl::MutexLock lock(&mutex_);
  return num_open_ + count <= max_pairs_;
}

}  // namespace baton::kvtransfer::cuda
