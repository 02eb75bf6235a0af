#pragma once
#include <string>
#include <vector>

namespace baton::bench {

// What one piece of work must move or compute at least, and how long it took.
struct Measurement {
  std::string name;
  std::string shape;
  double bytes = 0;  // read and written, each once
  double flops = 0;
  double seconds = 0;
};

// What the device can do, measured in the same run.
struct DeviceCeilings {
  double copy_bytes_per_second = 0;    // bytes read plus bytes written by a copy inside the device
  double matrix_flops_per_second = 0;  // cuBLASLt, 16-bit floats, a large square product
};

// The time that the ceilings would allow over the time it took: max(bytes / copy rate, flops /
// matrix rate) / seconds.
double ShareOfRoofline(const Measurement& measurement, const DeviceCeilings& ceilings);

// One line each, with GB/s, TFLOP/s and the share.
std::string ToTable(const std::vector<Measurement>& measurements, const DeviceCeilings& ceilings);
// {"device": ..., "ceilings": {...}, "measurements": [...]}
std::string ToJson(const std::string& device, const std::vector<Measurement>& measurements,
                   const DeviceCeilings& ceilings);

}  // namespace baton::bench
