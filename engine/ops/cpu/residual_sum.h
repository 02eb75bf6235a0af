#pragma once
#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/cpu/aligned_buffer.h"
#include "engine/ops/cpu/rank_link.h"
#include "engine/ops/ops.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// Where the results of Wo and Wdown go on their way to the residual stream x: straight into x;
// first into memory of its own, where a norm comes before the sum; or into memory that all ranks
// see, where others compute other columns. Thread-compatible.
class ResidualSum {
 public:
  ResidualSum(ThreadPool& pool, RankLink& link) : pool_(pool), link_(link) {}

  // Where results [x.rows, x.columns] are to be written, or null: they are to be added to x. Of
  // Start and Finish there is one each, in turn.
  absl::StatusOr<float*> Start(Matrix x, bool post_norm);
  // Adds what was written, by this and all other ranks, to x: after the norm of weights `post_norm`
  // where that is not empty. Meets the others.
  absl::Status Finish(std::span<const float> post_norm, float eps, Matrix x);

 private:
  ThreadPool& pool_;
  RankLink& link_;
  float* written_ = nullptr;
  AlignedBuffer<float> own_;  // results of a rank alone; normalized rows of one of several
};

}  // namespace baton::engine::cpu
