#pragma once
#include <cuda_runtime_api.h>

namespace baton::engine::cuda {

inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsPerRow = 32;

// How a mixture of experts deals out rows.
struct ExpertsShape {
  int num_rows;
  int num_experts;      // at most kMaxExperts
  int experts_per_row;  // at most kMaxExpertsPerRow
  int num_pairs() const { return num_rows * experts_per_row; }
};

// Which experts each row goes to and with what weight; in device memory. Entry j of a row is pair
// row * experts_per_row + j. The experts of a row are in the order of their index.
struct ExpertChoice {
  int* experts;    // [num_rows, experts_per_row]; -1 in filling rows
  float* weights;  // [num_rows, experts_per_row]; 0 in filling rows
};

// The pairs of a choice in the order of experts, and of rows within an expert: place p of the
// packed order. Expert e has places [offsets[e], offsets[e + 1]); offsets[num_experts] places are
// used in all, which are fewer than num_pairs() where there are filling rows. In device memory.
struct ExpertGroups {
  int* offsets;        // [num_experts + 1]
  int* place_rows;     // [num_pairs], the row at a place; unused places: 0
  int* place_experts;  // [num_pairs], the expert at a place; unused places: -1
  int* pair_places;    // [num_rows, experts_per_row], the place of a pair; -1 in filling rows
};

// Chooses as reference::ChooseExperts does: the experts of the largest logits, of equals the lower
// index; weights are their softmax over all logits, divided by the sum over the chosen if
// `normalize`; computed in double. NaN counts as the lowest logit.
//   logits: [num_rows, num_experts] float; row_sequence: DeviceBatch::row_sequence, or null: no
//   filling rows
cudaError_t ChooseExperts(const ExpertsShape& shape, const float* logits, const int* row_sequence,
                          bool normalize, const ExpertChoice& choice, cudaStream_t stream);

// Groups the pairs of a choice by expert. No atomics: the same choice gives the same groups.
cudaError_t GroupByExpert(const ExpertsShape& shape, const int* experts, const ExpertGroups& groups,
                          cudaStream_t stream);

// packed[p, :] = n[place_rows[p], :] for the places in use; the others are left alone.
//   n: [num_rows, columns], packed: [num_pairs, columns], both of T (__nv_bfloat16, __half, float);
//   columns * sizeof(T) a multiple of 16; at multiples of 16 bytes
// Moves 2 * columns * sizeof(T) bytes per place.
template <class T>
cudaError_t GatherForExperts(const ExpertsShape& shape, const ExpertGroups& groups, const T* n,
                             int columns, T* packed, cudaStream_t stream);

struct CombineOptions {
  bool add = false;             // y += the sum instead of y = the sum
  const float* bias = nullptr;  // [num_experts, columns] added to what experts give, or null
};

// y[row, :] = sum over j of weights[row, j] * (expert_out[pair_places[row, j], :] + bias), in the
// order of j, which is that of the experts. Filling rows become 0 (unchanged where adding).
//   pair_places: ExpertGroups::pair_places, or null: pair row * experts_per_row + j lies at its own
//   number (filling rows are then known by experts -1)
//   expert_out: [num_pairs, columns] of T (__nv_bfloat16, __half, float); y: [num_rows, columns]
//   float; columns a multiple of 8; at multiples of 16 bytes
// Moves columns * (experts_per_row * sizeof(T) + 4) bytes per row.
template <class T>
cudaError_t CombineExperts(const ExpertsShape& shape, const ExpertChoice& choice,
                           const int* pair_places, const T* expert_out, int columns,
                           const CombineOptions& options, float* y, cudaStream_t stream);

}  // namespace baton::engine::cuda
