#pragma once
#include <cuda_runtime_api.h>

namespace baton::engine::cuda {

// A Rope (engine/model/rope.h), its vectors in device memory.
struct DeviceRope {
  int dim;                    // rotated dimensions per head, even
  float magnitude;            // multiplies cos and sin
  int short_length;           // texts longer than this have other frequencies; 0: one set for all
  const double* frequencies;  // [dim / 2]
  const double* long_frequencies;  // [dim / 2]; null: dynamic, from theta and factor
  double theta;
  double factor;
};

// cos and sin of every row's angles: those of RopeAngleBuffer::Compute, computed in double and
// rounded to float. Filling rows get the angles of position 0.
//   positions: [num_rows]; text_lengths: [num_rows], tokens of the text that a row stands in (see
//   SequenceStep::prompt_length), may be null where short_length is 0; cos, sin: [num_rows, dim /
//   2]
// Moves 4 * dim bytes per row.
cudaError_t ComputeRopeAngles(const DeviceRope& rope, const int* positions, const int* text_lengths,
                              int num_rows, float* cos, float* sin, cudaStream_t stream);

}  // namespace baton::engine::cuda
