// Devices, errors and injected faults.
#include "cuda_emulation/runtime/devices.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "cuda_emulation/options.h"
#include "cuda_emulation/runtime/memory.h"
#include "cuda_emulation/runtime/properties.h"

namespace cuda_emulation {
namespace {

constexpr int kMaxDevices = 64;

struct State {
  std::mutex mutex;
  std::atomic<cudaError_t> sticky[kMaxDevices] = {};
  std::vector<Fault> faults;
  std::string last_message;
};

[[noreturn]] void RefuseFault(std::string_view text) {
  std::fprintf(stderr,
               "cuda_emulation: CUDA_EMULATION_FAULT=%.*s is not understood; it is "
               "CALL[:AFTER][:sticky][:times=N][:device=N][:error=NUMBER],...\n",
               static_cast<int>(text.size()), text.data());
  std::exit(2);
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Fault ParseFault(const std::string& text) {
  const std::vector<std::string> parts = Split(text, ':');
  Fault fault{.call = parts[0]};
  const bool allocates =
      fault.call == "cudaMalloc" || fault.call == "cudaHostAlloc" || fault.call == "cudaMallocHost";
  if (allocates) fault.error = cudaErrorMemoryAllocation;
  if (fault.call == "kernel") fault.error = cudaErrorLaunchFailure;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    const auto value = [&part] { return std::atoi(part.c_str() + part.find('=') + 1); };
    if (part == "sticky") {
      fault.sticky = true;
    } else if (part.starts_with("times=")) {
      fault.times = value();
    } else if (part.starts_with("device=")) {
      fault.device = value();
    } else if (part.starts_with("error=")) {
      fault.error = static_cast<cudaError_t>(value());
    } else if (!part.empty() &&
               std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      fault.after = std::atoi(part.c_str());
    } else {
      RefuseFault(text);
    }
  }
  return fault;
}

State& TheState() {
  static auto* state = [] {
    auto* made = new State;
    if (!TheOptions().faults.empty()) {
      for (const std::string& fault : Split(TheOptions().faults, ',')) {
        made->faults.push_back(ParseFault(fault));
      }
    }
    return made;
  }();
  return *state;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

// Counts the call against the faults; the first that is due answers.
std::optional<Fault> DueFault(std::string_view call, int device) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (Fault& fault : state.faults) {
    if (fault.call != call || fault.times <= 0) continue;
    if (fault.device >= 0 && fault.device != device) continue;
    if (fault.after > 0) {
      --fault.after;
      continue;
    }
    --fault.times;
    return fault;
  }
  return std::nullopt;
}

// What a process without driver or device gets from nearly every call.
cudaError_t MissingDevice() {
  if (!TheOptions().has_driver) return cudaErrorInsufficientDriver;
  if (TheOptions().devices == 0) return cudaErrorNoDevice;
  return cudaSuccess;
}

}  // namespace

cudaError_t Refuse(cudaError_t error, const std::string& why) {
  last_error = error;
  if (!why.empty()) {
    State& state = TheState();
    const std::lock_guard lock(state.mutex);
    state.last_message = why;
  }
  if (TheOptions().verbose) {
    std::fprintf(stderr, "cuda_emulation: %s (%s)\n", why.c_str(), cudaGetErrorName(error));
  }
  return error;
}

cudaError_t EnterCall(const char* call) {
  if (const cudaError_t missing = MissingDevice(); missing != cudaSuccess) {
    last_error = missing;
    return missing;
  }
  if (const cudaError_t sticky = StickyError(current_device); sticky != cudaSuccess) {
    last_error = sticky;
    return sticky;
  }
  const std::optional<Fault> fault = DueFault(call, current_device);
  if (!fault.has_value()) return cudaSuccess;
  if (fault->sticky) TheState().sticky[current_device] = fault->error;
  return Refuse(fault->error, std::string(call) + " fails, as injected");
}

Call::Call(const char* name) : error_(EnterCall(name)) {}

std::optional<cudaError_t> TakeFault(const char* call) {
  const std::optional<Fault> fault = DueFault(call, current_device);
  if (!fault.has_value()) return std::nullopt;
  return fault->error;
}

std::optional<cudaError_t> TakeKernelFault(int device) {
  const std::optional<Fault> fault = DueFault("kernel", device);
  if (!fault.has_value()) return std::nullopt;
  return fault->error;
}

void FailDevice(int device, cudaError_t error, const std::string& why) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  cudaError_t none = cudaSuccess;
  if (state.sticky[device].compare_exchange_strong(none, error)) state.last_message = why;
  std::fprintf(stderr, "cuda_emulation: device %d failed: %s\n", device, why.c_str());
}

cudaError_t StickyError(int device) { return TheState().sticky[device].load(); }
int CurrentDevice() { return current_device; }

void InjectFault(const Fault& fault) {
  const std::lock_guard lock(TheState().mutex);
  TheState().faults.push_back(fault);
}

void ClearFaults() {
  const std::lock_guard lock(TheState().mutex);
  TheState().faults.clear();
}

void ResetDevices() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (auto& sticky : state.sticky) sticky = cudaSuccess;
  state.last_message.clear();
  last_error = cudaSuccess;
}

std::string LastMessage() {
  const std::lock_guard lock(TheState().mutex);
  return TheState().last_message;
}

}  // namespace cuda_emulation

using cuda_emulation::Refuse;
using cuda_emulation::TheOptions;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  CUDA_EMULATION_ENTER(cudaGetDeviceCount);
  *count = TheOptions().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (TheOptions().has_driver && device >= 0 && device < TheOptions().devices) {
    // A failed device does not keep its thread from going to another.
    cuda_emulation::current_device = device;
  }
  CUDA_EMULATION_ENTER(cudaSetDevice);
  if (device < 0 || device >= TheOptions().devices) {
    return Refuse(cudaErrorInvalidDevice, "cudaSetDevice: there is no device " +
                                              std::to_string(device) + " of " +
                                              std::to_string(TheOptions().devices));
  }
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  CUDA_EMULATION_ENTER(cudaGetDevice);
  *device = cuda_emulation::current_device;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  cuda_emulation::last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t sticky = cuda_emulation::StickyError(cuda_emulation::current_device);
  return sticky != cudaSuccess ? sticky : cuda_emulation::last_error;
}

}  // extern "C"
