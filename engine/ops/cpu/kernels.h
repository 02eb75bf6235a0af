#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/model/model_plan.h"
#include "engine/ops/cpu/activations.h"
#include "engine/ops/cpu/packed_matrix.h"

// Entry points of the vectorised kernels. Each is compiled once per instruction set (Highway's
// foreach_target) and chosen at run time. All are single-threaded, allocate nothing, and compute
// every row by itself: the order of its sums depends on nothing but the length of the row.
namespace baton::engine::cpu {

// out[i, 0..15] = tile `tile` of `weights` * row `first_row + i` of `x`, in integer products over
// groups of 32 columns and float sums over groups, in column order.
//   weights: an integer format; x.quantized is set; out: [num_rows, 16]
void IntegerTile(const PackedMatrix& weights, int tile, const Activations& x, int first_row,
                 int num_rows, float* out);

// The same in float products, with the weights widened to float; sums run in column order within
// blocks of 128 columns, then over blocks. Any format; x.floats is set.
void FloatTile(const PackedMatrix& weights, int tile, const Activations& x, int first_row,
               int num_rows, float* out);

// out = x * weight / sqrt(mean(x^2) + eps) of one row. x and out may alias.
// Source: Zhang & Sennrich 2019 (arXiv:1910.07467).
void RmsNormRow(const float* x, const float* weight, float eps, int columns, float* out);

// Quantizes `count` values, a multiple of 32, into count / 32 groups, each scaled by its largest
// magnitude, to nearest even.
void QuantizeRow(const float* x, int count, QuantizedGroup* out);

// out[i] = activation(gate[i]) * up[i]. Any of the three may alias. Within 1e-6 of the result, the
// error that float's rounding of z makes in exp for |z| > 10 aside.
void ActivateGate(Activation activation, const float* gate, const float* up, int count, float* out);

// x[i] = cap * tanh(x[i] / cap), cap > 0.
void SoftCapRow(float cap, int count, float* x);

// x = exp(x) / sum(exp(x)) of one row, count >= 1.
void SoftmaxRow(int count, float* x);

// Converts floats to IEEE binary16, to nearest even; magnitudes beyond 65504 become 65504, so that
// a stored key or value is never infinite.
void FloatsToHalves(const float* x, int count, std::uint16_t* out);

// Keys are taken 64 at a time, at absolute positions that are multiples of 64.
inline constexpr int kKeyTile = 64;
// Partial attention results are joined at absolute positions that are multiples of this, so that a
// long context can be walked by several threads at once without changing the order of any sum.
inline constexpr int kKeySplit = 512;
constexpr int PaddedHeadDim(int head_dim) { return (head_dim + 15) / 16 * 16; }

// Attention of some query vectors over some keys, unfinished: softmax(q.k) v == out / sum.
struct AttentionState {
  float* max = nullptr;  // [num_queries], of all scores so far; meaningless while sum is 0
  float* sum = nullptr;  // [num_queries], of exp(score - max)
  float* out = nullptr;  // [num_queries, PaddedHeadDim], sum of exp(score - max) * value
};

// 64 keys and values of one KV head as the kernel reads them.
struct KeyValueTile {
  float* keys = nullptr;    // [head_dim, 64]
  float* values = nullptr;  // [64, PaddedHeadDim]
};

// Keys [begin, end) of a tile, 0 <= begin, end <= 64; none where begin >= end.
struct KeyRange {
  int begin = 0;
  int end = 0;
  bool operator==(const KeyRange&) const = default;
};

// Widens rows [first_key, first_key + count) of a tile from `keys` and `values`, both
// [count, head_dim] in f16 or f32. first_key and count need not be multiples of anything.
void LoadKeyValues(const void* keys, const void* values, bool half, int first_key, int count,
                   int head_dim, const KeyValueTile& tile);
// Makes the keys beside `loaded`, which alone were loaded, safe to compute with.
void ClearKeys(KeyRange loaded, int head_dim, const KeyValueTile& tile);
// Whether none of the values of keys `loaded` is infinite or NaN.
bool ValuesAreFinite(KeyRange loaded, int head_dim, const KeyValueTile& tile);

// Adds one tile of keys to the state of queries 0..num_queries-1, of which query i sees keys
// visible[i]. Those from the first to the last that any query sees were loaded, and ClearKeys
// called. Values that some query does not see must be finite: they are multiplied by zero. One
// query alone reads no value that it does not see; its bits are the same.
//   queries: [num_queries, head_dim], already scaled; softcap: as LayerPlan's, 0: none
// Source: online softmax, Milakov & Gimelshein 2018 (arXiv:1805.02867).
void AttendTile(const float* queries, const KeyRange* visible, int num_queries, int head_dim,
                float softcap, const KeyValueTile& tile, const AttentionState& state);

// Joins `part` into `total`, query by query; a query that `part` has no keys for stays as it is.
void JoinAttention(const AttentionState& part, int num_queries, int head_dim,
                   const AttentionState& total);

}  // namespace baton::engine::cpu
