// Speed of each kernel of the CUDA backend beside what the device can do in the same run: its copy
// bandwidth and the rate of cuBLASLt's 16-bit products.
//   gpu_kernel_bench [--small] [--json FILE]
//   --small      shapes for a quick look, and for the host emulation, whose times mean nothing
//   --json FILE  also writes the figures there
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "bench/gpu/kernel_cases.h"
#include "common/status.h"
#include "gpu/status.h"

namespace baton::bench {
namespace {

struct Flags {
  bool small = false;
  std::string json;
};

absl::StatusOr<std::string> DeviceName() {
  cudaDeviceProp properties{};
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, 0));
  return std::string(properties.name);
}

absl::Status Run(const Flags& flags) {
  BATON_ASSIGN_OR_RETURN(const std::string device, DeviceName());
  BATON_ASSIGN_OR_RETURN(
      DeviceTimer timer,
      DeviceTimer::Create(flags.small ? DeviceTimer::Options{.repeats = 1, .seconds = 0}
                                      : DeviceTimer::Options{}));
  const KernelBenchOptions options = flags.small ? SmallOptions() : LargeOptions();
  BATON_ASSIGN_OR_RETURN(const DeviceCeilings ceilings, MeasureCeilings(timer, flags.small));
  std::vector<Measurement> measurements;
  BATON_RETURN_IF_ERROR(MeasureMatmul(options, timer, measurements));
  BATON_RETURN_IF_ERROR(MeasureAttention(options, timer, measurements));
  BATON_RETURN_IF_ERROR(MeasureRowKernels(options, timer, measurements));
  BATON_RETURN_IF_ERROR(MeasureSampling(options, timer, measurements));
  std::printf("%s, shapes of %s\n%s", device.c_str(), options.model.name.c_str(),
              ToTable(measurements, ceilings).c_str());
  if (flags.json.empty()) return absl::OkStatus();
  std::ofstream file(flags.json);
  file << ToJson(device, measurements, ceilings);
  return file.good() ? absl::OkStatus() : absl::UnavailableError("cannot write " + flags.json);
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) {
      flags.small = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      flags.json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: gpu_kernel_bench [--small] [--json FILE]\n");
      return 2;
    }
  }
  const absl::Status status = Run(flags);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
