#include "engine/ops/cpu/rank_link.h"

#include <algorithm>

#include "common/status.h"
#include "engine/ops/cpu/row_loop.h"

namespace baton::engine::cpu {
namespace {

// Slots of ThreadCommunicator::Shared.
enum Place : int { kGathered, kHiddenFloats, kHiddenGroups, kSum };

template <class T>
absl::StatusOr<T*> Take(ThreadCommunicator& communicator, Place place, int rows, int columns) {
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(rows) * columns;
  BATON_ASSIGN_OR_RETURN(std::byte* const memory, communicator.Shared(place, bytes));
  return reinterpret_cast<T*>(memory);
}

}  // namespace

absl::StatusOr<Matrix> RankLink::Gather(Matrix part, IndexRange own, int columns) {
  if (alone()) return part;
  BATON_ASSIGN_OR_RETURN(float* const whole,
                         Take<float>(*communicator_, kGathered, part.rows, columns));
  ForRows(pool_, part.rows, [&](int row, int) {
    std::copy_n(part.f32() + static_cast<std::size_t>(row) * part.columns, own.size(),
                whole + static_cast<std::size_t>(row) * columns + own.begin);
  });
  BATON_RETURN_IF_ERROR(Meet());
  return Matrix{whole, part.rows, columns};
}

absl::StatusOr<float*> RankLink::HiddenFloats(int rows, int columns) {
  return Take<float>(*communicator_, kHiddenFloats, rows, columns);
}

absl::StatusOr<QuantizedGroup*> RankLink::HiddenGroups(int rows, int groups) {
  return Take<QuantizedGroup>(*communicator_, kHiddenGroups, rows, groups);
}

absl::StatusOr<float*> RankLink::Sum(int rows, int columns) {
  return Take<float>(*communicator_, kSum, rows, columns);
}

absl::StatusOr<float*> RankLink::LogitsOfFirst(float* logits) {
  if (alone()) return logits;
  BATON_ASSIGN_OR_RETURN(void* const first, communicator_->FromRank0(logits));
  return static_cast<float*>(first);
}

}  // namespace baton::engine::cpu
