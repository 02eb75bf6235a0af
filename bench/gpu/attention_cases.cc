#include <cuda_bf16.h>

#include <cmath>

#include "absl/strings/str_format.h"
#include "bench/gpu/device_batch_buffer.h"
#include "bench/gpu/kernel_cases.h"
#include "bench/gpu/random_matrix.h"
#include "common/status.h"
#include "engine/ops/cuda/kernels/attention.h"
#include "gpu/status.h"

namespace baton::bench {
namespace {

using BF16 = __nv_bfloat16;

constexpr int kBlockSize = 16;

// Attention of `num_sequences` sequences, `rows` rows each after `start` tokens.
absl::StatusOr<Measurement> MeasureOne(const ModelShape& model, int num_sequences, int rows,
                                       int start, DeviceTimer& timer) {
  const int num_rows = num_sequences * rows;
  const engine::cuda::AttentionShape shape{
      .num_heads = model.num_heads,
      .num_kv_heads = model.num_kv_heads,
      .head_dim = model.head_dim,
      .scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim)),
      .softcap = 0.0f,
      .window = 0};
  const engine::cuda::AttentionLimits limits{
      .max_rows = num_rows, .max_sequences = num_sequences, .max_positions = start + rows};
  BATON_ASSIGN_OR_RETURN(const auto batch,
                         DeviceBatchBuffer::Create(num_sequences, rows, start, kBlockSize));
  BATON_ASSIGN_OR_RETURN(const auto q,
                         RandomActivations(num_rows, model.num_heads * model.head_dim));
  BATON_ASSIGN_OR_RETURN(const auto out, gpu::DeviceBuffer::Create(q.bytes()));
  engine::cuda::KvView<BF16> kv{nullptr, model.num_kv_heads, model.head_dim, kBlockSize};
  BATON_ASSIGN_OR_RETURN(
      const auto pool, RandomActivations(batch.num_blocks(), static_cast<int>(kv.block_stride())));
  kv.data = pool.as<BF16>();
  BATON_ASSIGN_OR_RETURN(
      const auto plan, gpu::DeviceBuffer::Create(engine::cuda::AttentionPlanBytes(shape, limits)));
  BATON_ASSIGN_OR_RETURN(
      const auto workspace,
      gpu::DeviceBuffer::Create(engine::cuda::AttentionWorkspaceBytes(shape, limits)));
  BATON_RETURN_IF_ERROR(gpu::ToStatus(
      engine::cuda::PlanAttention(batch.view(), shape, limits, plan.data(), timer.stream()),
      "PlanAttention"));
  BATON_ASSIGN_OR_RETURN(const double seconds, timer.Time([&] {
    return gpu::ToStatus(
        engine::cuda::PagedAttention(batch.view(), shape, limits, plan.data(), rows, q.as<BF16>(),
                                     kv, workspace.data(), out.as<BF16>(), timer.stream()),
        "PagedAttention");
  }));
  // Row i of a chunk sees start + i + 1 positions.
  const double seen = num_sequences * (static_cast<double>(rows) * start + rows * (rows + 1.0) / 2);
  const double kv_bytes =
      4.0 * num_sequences * (start + rows) * model.num_kv_heads * model.head_dim;
  return Measurement{.bytes = kv_bytes + 2.0 * q.bytes(),
                     .flops = 4.0 * seen * model.num_heads * model.head_dim,
                     .seconds = seconds};
}

}  // namespace

absl::Status MeasureAttention(const KernelBenchOptions& options, DeviceTimer& timer,
                              std::vector<Measurement>& out) {
  for (const int context : options.context_tokens) {
    for (const int sequences : options.decode_rows) {
      BATON_ASSIGN_OR_RETURN(Measurement one,
                             MeasureOne(options.model, sequences, 1, context - 1, timer));
      one.name = "attention decode";
      one.shape = absl::StrFormat("%d sequences, context %d", sequences, context);
      out.push_back(std::move(one));
    }
  }
  for (const int rows : options.prefill_rows) {
    BATON_ASSIGN_OR_RETURN(Measurement one, MeasureOne(options.model, 1, rows, 0, timer));
    one.name = "attention prefill";
    one.shape = absl::StrFormat("%d tokens", rows);
    out.push_back(std::move(one));
  }
  return absl::OkStatus();
}

}  // namespace baton::bench
