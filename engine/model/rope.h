#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/model_metadata.h"

namespace baton::engine {

// Rotary position embedding, ready to compute: pair i of a row at position p turns by
// p * frequency[i]. Some scalings choose frequencies by the length of the text a row stands in: see
// SequenceStep::prompt_length.
struct Rope {
  int dim = 0;                      // rotated dimensions per head
  bool interleaved = false;         // pairs (2i, 2i+1) if true, (i, i + dim/2) if not
  float magnitude = 1.0f;           // multiplies cos and sin
  std::vector<double> frequencies;  // [dim / 2]
  // Of texts longer than `short_length` tokens: other frequencies (longrope), or a base that grows
  // with the text (dynamic). 0: one set for all.
  int short_length = 0;
  std::vector<double> long_frequencies;  // [dim / 2]; empty: dynamic
  double theta = 0.0;                    // dynamic only: base and factor
  double factor = 1.0;
};

// Makes it from the model's statement.
//   kFailedPrecondition  values the scaling cannot be computed with; names them
absl::StatusOr<Rope> MakeRope(const checkpoint::RopeMetadata& metadata, int head_dim);

// cos and sin of a batch's rows, both [num_rows, dim / 2]. A view.
struct RopeAngles {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Computes angles of batches, in float rounded from double. Keeps its memory. Thread-compatible.
class RopeAngleBuffer {
 public:
  // Angles of rows at `positions`, row t in a text of `lengths[t]` tokens, for each of `ropes`.
  // Valid until the next call.
  std::span<const RopeAngles> Compute(std::span<const Rope> ropes,
                                      std::span<const std::int32_t> positions,
                                      std::span<const std::int32_t> lengths);

 private:
  std::vector<float> values_;
  std::vector<RopeAngles> angles_;
};

}  // namespace baton::engine
