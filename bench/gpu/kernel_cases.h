#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/gpu/device_timer.h"
#include "bench/gpu/measurement.h"

namespace baton::bench {

// Shapes of a model whose kernels are measured.
struct ModelShape {
  std::string name;
  int hidden, intermediate, num_heads, num_kv_heads, head_dim, vocab;
};

// Which rows are measured.
struct KernelBenchOptions {
  ModelShape model;
  std::vector<int> decode_rows;     // batch sizes of decode steps
  std::vector<int> prefill_rows;    // tokens of a prompt's chunk
  std::vector<int> context_tokens;  // of decode attention
};
// Those of Llama 3.1 8B, and ones small enough for the host emulation.
KernelBenchOptions LargeOptions();
KernelBenchOptions SmallOptions();

absl::StatusOr<DeviceCeilings> MeasureCeilings(DeviceTimer& timer, bool small);

// Each appends what it measured. kResourceExhausted when the device has no room.
absl::Status MeasureRowKernels(const KernelBenchOptions& options, DeviceTimer& timer,
                               std::vector<Measurement>& out);
absl::Status MeasureAttention(const KernelBenchOptions& options, DeviceTimer& timer,
                              std::vector<Measurement>& out);
absl::Status MeasureMatmul(const KernelBenchOptions& options, DeviceTimer& timer,
                           std::vector<Measurement>& out);
absl::Status MeasureSampling(const KernelBenchOptions& options, DeviceTimer& timer,
                             std::vector<Measurement>& out);

}  // namespace baton::bench
