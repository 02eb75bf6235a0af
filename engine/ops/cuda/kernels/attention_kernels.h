#pragma once
#include <cuda_runtime_api.h>

#include "engine/ops/cuda/kernels/attention_layout.h"

// The kernels behind attention.h and what they are given.
namespace baton::engine::cuda {

// How a product q.k becomes an exponent of two: multiplied by `exponent_scale`, after a soft cap
// if `cap` is not 0, which gives cap * tanh(product * tanh_scale / (2 log2(e))).
struct ScoreScale {
  float exponent_scale;
  float tanh_scale;
  float cap;

  static ScoreScale For(const AttentionShape& shape);
};

// Of one launch, passed by value.
template <class T>
struct AttentionArguments {
  const SequenceRows* sequences;
  const int* block_tables;
  int max_blocks;
  PlanView plan;
  const T* q;
  const T* kv;  // the layer's first block
  T* out;
  // Partial results of splits: unnormalized output [units, num_heads, head_dim], and per head the
  // largest exponent and the sum of weights [units, num_heads].
  float* partial;
  float2* partial_max_sum;
  int num_heads;
  int num_kv_heads;
  int group;  // num_heads / num_kv_heads
  int head_dim;
  int block_shift;  // log2 of the block size
  int window;
  ScoreScale score;
};

// Checks what PagedAttention is called with and fills `arguments`. cudaErrorInvalidValue as there.
template <class T>
cudaError_t MakeAttentionArguments(const DeviceBatch& batch, const AttentionShape& shape,
                                   const AttentionLimits& limits, const void* plan, const T* q,
                                   const KvView<T>& kv, void* workspace, T* out,
                                   AttentionArguments<T>* arguments);

// Each for head dimensions up to kDim, one of TileDim's. `blocks` (> 0): of a KV head; any number
// gives the same result, since blocks walk over the items of the plan.
template <class T, int kDim>
cudaError_t LaunchPrefillAttention(const AttentionArguments<T>& arguments, int blocks,
                                   cudaStream_t stream);
template <class T, int kDim>
cudaError_t LaunchDecodeAttention(const AttentionArguments<T>& arguments, int blocks,
                                  cudaStream_t stream);
// Merges the partial results of decoded rows.
template <class T>
cudaError_t LaunchMergeAttention(const AttentionArguments<T>& arguments, int blocks,
                                 cudaStream_t stream);

}  // namespace baton::engine::cuda
