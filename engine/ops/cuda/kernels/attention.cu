// Launches attention: checks shapes, finds the variant, sizes the grids. Grids follow from what the
// host knows at capture; what a replay has less of is an empty item, and its block exits at once.
#include "engine/ops/cuda/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "gpu/portable.h"

namespace baton::engine::cuda {
namespace {

// Some waves of blocks on the largest device; more items are walked over.
constexpr int kMaxBlocks = 2048;

struct WorkspaceLayout {
  std::size_t partial_bytes;  // before the maxima and sums; a multiple of 16
  std::size_t bytes;

  static WorkspaceLayout For(const AttentionShape& shape, const PlanSizes& sizes) {
    const std::size_t results = static_cast<std::size_t>(sizes.units) * shape.num_heads;
    const std::size_t partial_bytes = results * shape.head_dim * sizeof(float);
    return {partial_bytes, partial_bytes + results * sizeof(float2)};
  }
};

int BlockShift(int block_size) {
  return block_size == 16 ? 4 : block_size == 32 ? 5 : block_size == 64 ? 6 : -1;
}

template <class T, int kDim>
cudaError_t LaunchAll(const AttentionArguments<T>& arguments, const PlanSizes& sizes, int num_rows,
                      int longest, cudaStream_t stream) {
  const auto blocks = [](int items, int times) {
    return std::clamp(items, 1, std::max(1, kMaxBlocks / times));
  };
  const int tiles = CeilDivide(arguments.group, kDecodeTileRows);
  // Of one split each, or of as many as a sequence may have.
  const int split_rows = std::min(num_rows, kMaxSplitRows) * sizes.splits;
  const int decode_blocks =
      blocks(std::min(sizes.decode_items, (num_rows + split_rows) * tiles), arguments.num_kv_heads);
  cudaError_t error = LaunchDecodeAttention<T, kDim>(arguments, decode_blocks, stream);
  if (error != cudaSuccess) return error;
  const bool overflows = sizes.splits > 1 && num_rows * sizes.splits > sizes.units;
  if (overflows || !Decoded(longest, arguments.group)) {
    const int items = std::min(sizes.prefill_items, num_rows * arguments.group);
    error =
        LaunchPrefillAttention<T, kDim>(arguments, blocks(items, arguments.num_kv_heads), stream);
    if (error != cudaSuccess) return error;
  }
  if (sizes.merge_rows == 0) return cudaSuccess;
  return LaunchMergeAttention(
      arguments, blocks(std::min(num_rows, sizes.merge_rows), arguments.num_heads), stream);
}

}  // namespace

ScoreScale ScoreScale::For(const AttentionShape& shape) {
  constexpr float kLog2E = std::numbers::log2e_v<float>;
  if (shape.softcap == 0.0f) return {shape.scale * kLog2E, 0.0f, 0.0f};
  return {1.0f, 2.0f * kLog2E * shape.scale / shape.softcap, shape.softcap * kLog2E};
}

std::size_t AttentionWorkspaceBytes(const AttentionShape& shape, const AttentionLimits& limits) {
  if (!ValidAttention(shape, limits)) return 0;
  return WorkspaceLayout::For(shape, PlanSizes::For(shape, limits)).bytes;
}

template <class T>
cudaError_t MakeAttentionArguments(const DeviceBatch& batch, const AttentionShape& shape,
                                   const AttentionLimits& limits, const void* plan, const T* q,
                                   const KvView<T>& kv, void* workspace, T* out,
                                   AttentionArguments<T>* arguments) {
  if (!ValidAttention(shape, limits) || batch.num_rows > limits.max_rows ||
      batch.num_sequences > limits.max_sequences || kv.num_kv_heads != shape.num_kv_heads ||
      kv.head_dim != shape.head_dim || BlockShift(kv.block_size) < 0) {
    return cudaErrorInvalidValue;
  }
  const PlanSizes sizes = PlanSizes::For(shape, limits);
  const WorkspaceLayout layout = WorkspaceLayout::For(shape, sizes);
  char* const partial = static_cast<char*>(workspace);
  *arguments = {.sequences = batch.sequences,
                .block_tables = batch.block_tables,
                .max_blocks = batch.max_blocks,
                .plan = sizes.View(const_cast<void*>(plan)),
                .q = q,
                .kv = kv.data,
                .out = out,
                .partial = reinterpret_cast<float*>(partial),
                .partial_max_sum = reinterpret_cast<float2*>(partial + layout.partial_bytes),
                .num_heads = shape.num_heads,
                .num_kv_heads = shape.num_kv_heads,
                .group = shape.num_heads / shape.num_kv_heads,
                .head_dim = shape.head_dim,
                .block_shift = BlockShift(kv.block_size),
                .window = shape.window,
                .score = ScoreScale::For(shape)};
  return cudaSuccess;
}

template <class T>
cudaError_t PagedAttention(const DeviceBatch& batch, const AttentionShape& shape,
                           const AttentionLimits& limits, const void* plan, int longest, const T* q,
                           const KvView<T>& kv, void* workspace, T* out, cudaStream_t stream) {
  if (batch.num_rows == 0) return cudaSuccess;
  if (longest < 1) return cudaErrorInvalidValue;
  AttentionArguments<T> arguments;
  const cudaError_t error =
      MakeAttentionArguments(batch, shape, limits, plan, q, kv, workspace, out, &arguments);
  if (error != cudaSuccess) return error;
  const PlanSizes sizes = PlanSizes::For(shape, limits);
  const auto launch = [&](auto launch_all) {
    return launch_all(arguments, sizes, batch.num_rows, longest, stream);
  };
  switch (TileDim(shape.head_dim)) {
    case 32:
      return launch(LaunchAll<T, 32>);
    case 64:
      return launch(LaunchAll<T, 64>);
    case 96:
      return launch(LaunchAll<T, 96>);
    case 128:
      return launch(LaunchAll<T, 128>);
    case 256:
      return launch(LaunchAll<T, 256>);
    default:
      return cudaErrorInvalidValue;
  }
}

#define BATON_INSTANTIATE(T)                                                                    \
  template cudaError_t MakeAttentionArguments(                                                  \
      const DeviceBatch&, const AttentionShape&, const AttentionLimits&, const void*, const T*, \
      const KvView<T>&, void*, T*, AttentionArguments<T>*);                                     \
  template cudaError_t PagedAttention(const DeviceBatch&, const AttentionShape&,                \
                                      const AttentionLimits&, const void*, int, const T*,       \
                                      const KvView<T>&, void*, T*, cudaStream_t);
BATON_INSTANTIATE(__nv_bfloat16)
BATON_INSTANTIATE(__half)

}  // namespace baton::engine::cuda
