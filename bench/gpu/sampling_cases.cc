#include <cuda_runtime_api.h>

#include <vector>

#include "absl/strings/str_format.h"
#include "bench/gpu/kernel_cases.h"
#include "bench/gpu/random_matrix.h"
#include "common/status.h"
#include "engine/ops/cuda/kernels/sample.h"
#include "gpu/status.h"

namespace baton::bench {
namespace {

using engine::cuda::SampleRow;

absl::Status MeasureOne(const char* what, const SampleRow& row, int num_rows, int vocab,
                        DeviceTimer& timer, std::vector<Measurement>& out) {
  const std::vector<SampleRow> rows(static_cast<std::size_t>(num_rows), row);
  BATON_ASSIGN_OR_RETURN(const auto logits,
                         RandomFloats(static_cast<std::size_t>(num_rows) * vocab));
  BATON_ASSIGN_OR_RETURN(const auto parameters,
                         gpu::DeviceBuffer::Create(rows.size() * sizeof(SampleRow)));
  BATON_ASSIGN_OR_RETURN(
      const auto workspace,
      gpu::DeviceBuffer::Create(engine::cuda::SampleWorkspaceBytes(num_rows, vocab)));
  BATON_ASSIGN_OR_RETURN(const auto tokens,
                         gpu::DeviceBuffer::Create(rows.size() * sizeof(std::int32_t)));
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(workspace.data(), 0, workspace.bytes(), timer.stream()));
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(parameters.data(), rows.data(), parameters.bytes(),
                                             cudaMemcpyHostToDevice, timer.stream()));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(timer.stream()));
  BATON_ASSIGN_OR_RETURN(const double seconds, timer.Time([&] {
    return gpu::ToStatus(engine::cuda::SampleTokens(
                             logits.as<float>(), num_rows, vocab, parameters.as<SampleRow>(),
                             nullptr, workspace.data(), tokens.as<std::int32_t>(), timer.stream()),
                         "SampleTokens");
  }));
  out.push_back({.name = absl::StrFormat("sample %s", what),
                 .shape = absl::StrFormat("%d rows of %d", num_rows, vocab),
                 .bytes = 4.0 * num_rows * vocab,
                 .seconds = seconds});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureSampling(const KernelBenchOptions& options, DeviceTimer& timer,
                             std::vector<Measurement>& out) {
  SampleRow greedy{};
  greedy.top_p = 1.0f;
  greedy.repetition_penalty = 1.0f;
  SampleRow filtered = greedy;
  filtered.temperature = 0.8f;
  filtered.top_p = 0.95f;
  filtered.top_k = 50;
  for (const int num_rows : options.decode_rows) {
    BATON_RETURN_IF_ERROR(MeasureOne("greedy", greedy, num_rows, options.model.vocab, timer, out));
    BATON_RETURN_IF_ERROR(
        MeasureOne("top-k, top-p", filtered, num_rows, options.model.vocab, timer, out));
  }
  return absl::OkStatus();
}

}  // namespace baton::bench
