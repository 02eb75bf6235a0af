#pragma once
#include <functional>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace baton::kvtransfer::cuda {

// Bounds the open NCCL pairs of a process: each takes device memory. When there is no room the link
// whose pairs were used longest ago is asked to close them. Thread-safe.
class PairBudget {
 public:
  explicit PairBudget(int max_pairs) : max_pairs_(max_pairs) {}

  // A link that can close its pairs when asked. `close_if_idle` must not wait or call back; it may
  // be called until Leave returns.
  using Member = std::list<std::function<void()>>::iterator;
  Member Join(std::function<void()> close_if_idle);
  void Leave(Member member);
  void Used(Member member);  // it goes to the end of the row

  // Takes room for `count` pairs. False: there is none.
  bool Acquire(int count);
  // Asks the link used longest ago to close its pairs; the next call asks the one after it.
  void MakeRoom();
  void Release(int count);
  bool HasRoom(int count) const;
  int max_pairs() const { return max_pairs_; }

 private:
  const int max_pairs_;
  mutable absl::Mutex mutex_;
  int num_open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<std::function<void()>> members_ ABSL_GUARDED_BY(mutex_);  // the front waited longest
};

}  // namespace baton::kvtransfer::cuda
