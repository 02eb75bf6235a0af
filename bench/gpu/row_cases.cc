#include <cuda_bf16.h>

#include "absl/strings/str_format.h"
#include "bench/gpu/device_batch_buffer.h"
#include "bench/gpu/kernel_cases.h"
#include "bench/gpu/random_matrix.h"
#include "common/status.h"
#include "engine/ops/cuda/kernels/activation.h"
#include "engine/ops/cuda/kernels/add.h"
#include "engine/ops/cuda/kernels/qkv_rope.h"
#include "engine/ops/cuda/kernels/rms_norm.h"
#include "gpu/status.h"

namespace baton::bench {
namespace {

using BF16 = __nv_bfloat16;
using engine::cuda::KvView;

absl::Status MeasureNormAndAdd(const ModelShape& model, int rows, DeviceTimer& timer,
                               std::vector<Measurement>& out) {
  const std::size_t count = static_cast<std::size_t>(rows) * model.hidden;
  BATON_ASSIGN_OR_RETURN(const auto x, RandomFloats(count));
  BATON_ASSIGN_OR_RETURN(const auto weight, RandomFloats(model.hidden));
  BATON_ASSIGN_OR_RETURN(const auto normalized, gpu::DeviceBuffer::Create(count * 2));
  BATON_ASSIGN_OR_RETURN(const double norm, timer.Time([&] {
    return gpu::ToStatus(
        engine::cuda::RmsNorm(x.as<float>(), nullptr, rows, weight.as<float>(), model.hidden, 1e-5f,
                              normalized.as<BF16>(), timer.stream()),
        "RmsNorm");
  }));
  const std::string shape = absl::StrFormat("%d rows of %d", rows, model.hidden);
  out.push_back({.name = "rms_norm", .shape = shape, .bytes = 6.0 * count, .seconds = norm});
  BATON_ASSIGN_OR_RETURN(const auto part, RandomFloats(count));
  BATON_ASSIGN_OR_RETURN(const double add, timer.Time([&] {
    const engine::cuda::Addition addition{.parts = part.as<float>()};
    return gpu::ToStatus(
        engine::cuda::AddToResidual(addition, rows, model.hidden, x.as<float>(), timer.stream()),
        "AddToResidual");
  }));
  out.push_back({.name = "add", .shape = shape, .bytes = 12.0 * count, .seconds = add});
  return absl::OkStatus();
}

absl::Status MeasureActivation(const ModelShape& model, int rows, DeviceTimer& timer,
                               std::vector<Measurement>& out) {
  BATON_ASSIGN_OR_RETURN(const auto gate_up, RandomActivations(rows, 2 * model.intermediate));
  const std::size_t count = static_cast<std::size_t>(rows) * model.intermediate;
  BATON_ASSIGN_OR_RETURN(const auto to, gpu::DeviceBuffer::Create(count * 2));
  BATON_ASSIGN_OR_RETURN(const double seconds, timer.Time([&] {
    return gpu::ToStatus(
        engine::cuda::GatedActivation(engine::cuda::GateActivation::kSilu,
                                      {.num_rows = rows, .intermediate = model.intermediate},
                                      gate_up.as<BF16>(), to.as<BF16>(), timer.stream()),
        "GatedActivation");
  }));
  out.push_back({.name = "gated_activation",
                 .shape = absl::StrFormat("%d rows of %d", rows, model.intermediate),
                 .bytes = 6.0 * count,
                 .seconds = seconds});
  return absl::OkStatus();
}

absl::Status MeasureAppend(const ModelShape& model, int rows, DeviceTimer& timer,
                           std::vector<Measurement>& out) {
  constexpr int kBlockSize = 16;
  const int columns = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim;
  BATON_ASSIGN_OR_RETURN(const auto batch, DeviceBatchBuffer::Create(1, rows, 0, kBlockSize));
  BATON_ASSIGN_OR_RETURN(const auto qkv, RandomActivations(rows, columns));
  BATON_ASSIGN_OR_RETURN(const auto angles, RandomFloats(std::size_t{1} * rows * model.head_dim));
  BATON_ASSIGN_OR_RETURN(const auto q, gpu::DeviceBuffer::Create(std::size_t{2} * rows *
                                                                 model.num_heads * model.head_dim));
  KvView<BF16> kv{nullptr, model.num_kv_heads, model.head_dim, kBlockSize};
  BATON_ASSIGN_OR_RETURN(
      const auto pool,
      gpu::DeviceBuffer::Create(std::size_t{2} * kv.block_stride() * batch.num_blocks()));
  kv.data = pool.as<BF16>();
  const engine::cuda::QkvShape shape{.num_heads = model.num_heads,
                                     .num_kv_heads = model.num_kv_heads,
                                     .head_dim = model.head_dim,
                                     .rope_dim = model.head_dim};
  const float* cos = angles.as<float>();
  const float* sin = cos + std::size_t{1} * rows * model.head_dim / 2;
  BATON_ASSIGN_OR_RETURN(const double seconds, timer.Time([&] {
    return gpu::ToStatus(engine::cuda::QkvRopeAppend(batch.view(), shape, qkv.as<BF16>(), cos, sin,
                                                     kv, q.as<BF16>(), timer.stream()),
                         "QkvRopeAppend");
  }));
  out.push_back({.name = "qkv_rope_append",
                 .shape = absl::StrFormat("%d rows of %d", rows, columns),
                 .bytes = 4.0 * rows * columns + 4.0 * rows * model.head_dim,
                 .seconds = seconds});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureRowKernels(const KernelBenchOptions& options, DeviceTimer& timer,
                               std::vector<Measurement>& out) {
  std::vector<int> rows = options.decode_rows;
  rows.insert(rows.end(), options.prefill_rows.begin(), options.prefill_rows.end());
  for (const int num_rows : rows) {
    BATON_RETURN_IF_ERROR(MeasureNormAndAdd(options.model, num_rows, timer, out));
    BATON_RETURN_IF_ERROR(MeasureAppend(options.model, num_rows, timer, out));
    BATON_RETURN_IF_ERROR(MeasureActivation(options.model, num_rows, timer, out));
  }
  return absl::OkStatus();
}

}  // namespace baton::bench
