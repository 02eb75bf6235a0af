#pragma once
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor_parallel.h"
#include "engine/ops/cpu/activations.h"
#include "engine/ops/ops.h"
#include "engine/parallel/shard.h"
#include "engine/parallel/thread_communicator.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// How the ranks of a group put together matrices of which each has computed some columns: they
// write them into memory that all see, and meet. Every matrix of weights is cut by output rows
// alone, so a sum never runs over the work of two ranks: its order, and every bit, is that of a
// rank alone. A link without a communicator is that of a rank alone, and does nothing.
//
// Each step of a layer uses a place of its own, which is not written again before all have met
// twice: once they have all written it, and once more after they have read it. Thread-compatible.
class RankLink {
 public:
  RankLink(ThreadPool& pool, std::shared_ptr<ThreadCommunicator> communicator)
      : pool_(pool), communicator_(std::move(communicator)) {}

  bool alone() const { return communicator_ == nullptr; }
  bool is_first() const { return alone() || communicator_->rank() == 0; }
  // Whether `columns` columns of a hidden layer are dealt out in whole groups.
  bool deals_groups(int columns) const {
    return alone() || DealsWholeRuns(columns, communicator_->world_size());
  }
  // Returns once every rank has called it.
  absl::Status Meet() { return alone() ? absl::OkStatus() : communicator_->Barrier(); }

  // The rows of a matrix of `columns` columns, of which `part` are columns `own` as this rank has
  // them. Meets the others.
  absl::StatusOr<Matrix> Gather(Matrix part, IndexRange own, int columns);

  // Room for a matrix [rows, columns] that all ranks write and that is read after Meet(). Not of a
  // rank alone.
  absl::StatusOr<float*> HiddenFloats(int rows, int columns);
  absl::StatusOr<QuantizedGroup*> HiddenGroups(int rows, int groups);
  absl::StatusOr<float*> Sum(int rows, int columns);

  // Rank 0's `logits`. Meets the others.
  absl::StatusOr<float*> LogitsOfFirst(float* logits);

 private:
  ThreadPool& pool_;
  const std::shared_ptr<ThreadCommunicator> communicator_;
};

}  // namespace baton::engine::cpu
