#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "engine/ops/cuda/kernels/device_batch.h"

namespace baton::engine::cuda {

// What attention of one layer computes. Query head h uses KV head h / (num_heads / num_kv_heads).
struct AttentionShape {
  int num_heads;     // of this rank; a multiple of num_kv_heads
  int num_kv_heads;  // of this rank
  int head_dim;      // a multiple of 8, at most 256; 64, 96, 128 and 256 waste nothing
  float scale;       // positive; multiplies q.k
  float softcap;     // then score = cap * tanh(score / cap); 0: none
  int window;        // a row sees itself and the window - 1 positions before it; 0: all before it
};

// What buffers are sized for; a launch may have less.
struct AttentionLimits {
  int max_rows;
  int max_sequences;
  int max_positions;  // of any sequence: start_position + num_rows
};

// Bytes of a plan, which says which block of threads computes what: device memory, filled on the
// device by PlanAttention from the contents of a batch, so that a captured graph follows them.
// Layers alike in num_heads, num_kv_heads, head_dim and window share one.
std::size_t AttentionPlanBytes(const AttentionShape& shape, const AttentionLimits& limits);

// Bytes of the workspace that PagedAttention keeps unmerged results in. All layers may share one:
// nothing in it outlives a call.
std::size_t AttentionWorkspaceBytes(const AttentionShape& shape, const AttentionLimits& limits);

// Fills `plan` (AttentionPlanBytes, a multiple of 16 bytes). Once a step before the first layer
// that uses it, in order with PagedAttention on `stream`. One small kernel, 2-4 us.
//   cudaErrorInvalidValue  the shape is none of the above, or the batch exceeds the limits
cudaError_t PlanAttention(const DeviceBatch& batch, const AttentionShape& shape,
                          const AttentionLimits& limits, void* plan, cudaStream_t stream);

// Causal attention of each row over its own sequence's positions [FirstVisible(position), position]
// in `kv`. `plan` was filled for this batch, a like shape and the same limits.
//   q, out: [num_rows, num_heads * head_dim] of T (__nv_bfloat16 or __half), not aliased; `out` of
//   rows that belong to no sequence stays as it was
//   longest: no sequence of the batch has more rows. A promise of the host, which saves the launch
//   of what cannot occur: 1 in steps that only decode. May be batch.num_rows where it is unknown.
//   workspace: AttentionWorkspaceBytes; like q, kv and out a multiple of 16 bytes
// Computes with T's tensor cores, sums in float, and rounds the softmax's weights and the output to
// T. Batch-invariant: the bits of a row depend on its query and what it sees alone, not on the
// batch, on how a prompt was cut into chunks, nor on which of the kernels computed it. Slots that
// it does not see have no effect, NaN and infinity included; a hole of the block table is never
// followed. A row that sees an infinite or NaN value may become NaN in all of its elements.
// Up to three kernels; allocates nothing, never waits; may be captured into a graph.
//   cudaErrorInvalidValue  shapes disagree, or a block size is not 16, 32 or 64
// Source: Dao 2023 (arXiv:2307.08691), with the split of Flash-Decoding at fixed positions.
template <class T>
cudaError_t PagedAttention(const DeviceBatch& batch, const AttentionShape& shape,
                           const AttentionLimits& limits, const void* plan, int longest, const T* q,
                           const KvView<T>& kv, void* workspace, T* out, cudaStream_t stream);

}  // namespace baton::engine::cuda
