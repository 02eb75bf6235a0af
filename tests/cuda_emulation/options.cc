#include "cuda_emulation/options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace cuda_emulation {
namespace {

// A test with a misspelt setting would prove nothing: stop.
[[noreturn]] void Refuse(const char* name, const char* value) {
  std::fprintf(stderr,
               "cuda_emulation: %s=%s is not understood; see tests/cuda_emulation/README.md\n",
               name, value);
  std::exit(2);
}

std::string Text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::uint64_t Number(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  if (value == nullptr) return otherwise;
  char* end = nullptr;
  const std::uint64_t number = std::strtoull(value, &end, 10);
  if (end == value || *end != '\0') Refuse(name, value);
  return number;
}

bool Flag(const char* name) { return Number(name, 0) != 0; }

Schedule ReadSchedule() {
  Schedule schedule;
  const std::string order = Text("CUDA_EMULATION_ORDER");
  if (order == "reverse") {
    schedule.order = Order::kReverse;
  } else if (order.starts_with("random")) {
    schedule.order = Order::kRandom;
    if (const auto colon = order.find(':'); colon != order.npos) {
      schedule.seed = std::strtoull(order.c_str() + colon + 1, nullptr, 10);
    }
  } else if (!order.empty() && order != "forward") {
    Refuse("CUDA_EMULATION_ORDER", order.c_str());
  }
  const std::string copies = Text("CUDA_EMULATION_CP_ASYNC");
  if (copies == "early") {
    schedule.copies = AsyncCopies::kEarly;
  } else if (copies == "random") {
    schedule.copies = AsyncCopies::kRandom;
  } else if (!copies.empty() && copies != "late") {
    Refuse("CUDA_EMULATION_CP_ASYNC", copies.c_str());
  }
  return schedule;
}

Options Read() {
  Options options;
  options.workers = std::max<int>(1, static_cast<int>(Number("CUDA_EMULATION_WORKERS", 2)));
  options.schedule = ReadSchedule();
  options.skip_barrier = Text("CUDA_EMULATION_SKIP_SYNC");
  options.barriers_file = Text("CUDA_EMULATION_BARRIERS_FILE");
  options.devices = static_cast<int>(Number("CUDA_EMULATION_DEVICES", 1));
  options.has_driver = !Flag("CUDA_EMULATION_NO_DEVICE");
  options.memory_bytes = Number("CUDA_EMULATION_MEMORY_MB", 2048) << 20;
  options.multiprocessors = static_cast<int>(Number("CUDA_EMULATION_MULTIPROCESSORS", 132));
  options.guard = Flag("CUDA_EMULATION_GUARD");
#if defined(__SANITIZE_ADDRESS__)
  options.guard = false;  // the red zones of malloc find more
#endif
  options.check_leaks = Flag("CUDA_EMULATION_LEAKS");
  options.verbose = Flag("CUDA_EMULATION_VERBOSE");
  options.faults = Text("CUDA_EMULATION_FAULT");
  return options;
}

}  // namespace

const Options& TheOptions() {
  static const Options options = Read();
  return options;
}

}  // namespace cuda_emulation
