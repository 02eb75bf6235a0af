#include "bench/gpu/measurement.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace baton::bench {

double ShareOfRoofline(const Measurement& measurement, const DeviceCeilings& ceilings) {
  if (measurement.seconds <= 0) return 0;
  const double by_bytes =
      ceilings.copy_bytes_per_second > 0 ? measurement.bytes / ceilings.copy_bytes_per_second : 0;
  const double by_flops = ceilings.matrix_flops_per_second > 0
                              ? measurement.flops / ceilings.matrix_flops_per_second
                              : 0;
  return std::max(by_bytes, by_flops) / measurement.seconds;
}

std::string ToTable(const std::vector<Measurement>& measurements, const DeviceCeilings& ceilings) {
  std::string table = absl::StrFormat("copy %.0f GB/s, matrix products %.1f TFLOP/s\n",
                                      ceilings.copy_bytes_per_second / 1e9,
                                      ceilings.matrix_flops_per_second / 1e12);
  absl::StrAppendFormat(&table, "%-28s %-34s %10s %9s %9s %7s\n", "kernel", "shape", "us", "GB/s",
                        "TFLOP/s", "share");
  for (const Measurement& one : measurements) {
    absl::StrAppendFormat(&table, "%-28s %-34s %10.1f %9.0f %9.2f %6.0f%%\n", one.name, one.shape,
                          one.seconds * 1e6, one.bytes / one.seconds / 1e9,
                          one.flops / one.seconds / 1e12, 100 * ShareOfRoofline(one, ceilings));
  }
  return table;
}

std::string ToJson(const std::string& device, const std::vector<Measurement>& measurements,
                   const DeviceCeilings& ceilings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Measurement& one : measurements) {
    list.push_back({{"name", one.name},
                    {"shape", one.shape},
                    {"bytes", one.bytes},
                    {"flops", one.flops},
                    {"seconds", one.seconds},
                    {"share", ShareOfRoofline(one, ceilings)}});
  }
  const nlohmann::json all = {{"device", device},
                              {"ceilings",
                               {{"copy_bytes_per_second", ceilings.copy_bytes_per_second},
                                {"matrix_flops_per_second", ceilings.matrix_flops_per_second}}},
                              {"measurements", list}};
  return all.dump(2) + "\n";
}

}  // namespace baton::bench
