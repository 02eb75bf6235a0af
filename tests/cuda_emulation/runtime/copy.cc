// Copies and fills. Their addresses are held against the table of allocations: more strictly than a
// device does, which notices a wrong range only when it crosses an unmapped page.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda_emulation/executor/statistics.h"
#include "cuda_emulation/runtime/capture.h"
#include "cuda_emulation/runtime/devices.h"
#include "cuda_emulation/runtime/memory.h"
#include "cuda_emulation/runtime/stream.h"

namespace cuda_emulation {
namespace {

enum class Place { kDevice, kPinned, kPageable };

// Rows of `width` bytes, `pitch` apart; a plain copy has one row.
struct Region {
  std::uintptr_t begin = 0;
  std::size_t width = 0, height = 1, pitch = 0;
  std::uintptr_t end() const { return begin + (height - 1) * pitch + width; }
};

Region RegionOf(const void* address, std::size_t width, std::size_t height, std::size_t pitch) {
  return {reinterpret_cast<std::uintptr_t>(address), width, height, pitch};
}

// Where the region lies; nothing when it leaves its allocation.
std::optional<Place> PlaceOf(const Region& region) {
  const auto found = FindAllocation(reinterpret_cast<const void*>(region.begin));
  if (!found.has_value()) return Place::kPageable;
  if (region.end() > found->begin + found->bytes) return std::nullopt;
  return found->kind == MemoryKind::kDevice ? Place::kDevice : Place::kPinned;
}

struct Copy {
  Region to, from;
  Place to_place = Place::kPageable, from_place = Place::kPageable;
  bool staged = false;  // pageable: the host may use its memory again when the call returns
};

cudaError_t PlaceCopy(Copy& copy, cudaMemcpyKind kind, const char* call) {
  const std::string name = std::string(call) + ": ";
  const auto to = PlaceOf(copy.to), from = PlaceOf(copy.from);
  if (!to.has_value() || !from.has_value()) {
    return Refuse(cudaErrorInvalidValue, name + "the range of the " +
                                             (to.has_value() ? "source" : "destination") +
                                             " leaves its allocation");
  }
  copy.to_place = *to;
  copy.from_place = *from;
  const bool to_device = *to == Place::kDevice, from_device = *from == Place::kDevice;
  const bool want_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool want_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (to_device != want_to || from_device != want_from)) {
    return Refuse(cudaErrorInvalidMemcpyDirection,
                  name + "the direction does not fit: " + (from_device ? "device" : "host") +
                      " to " + (to_device ? "device" : "host"));
  }
  if (copy.to.begin < copy.from.end() && copy.from.begin < copy.to.end()) {
    return Refuse(cudaErrorInvalidValue, name + "source and destination overlap");
  }
  return cudaSuccess;
}

void CopyRows(const Region& to, const Region& from) {
  const Loud loud;  // a race with it is the program's
  for (std::size_t row = 0; row < to.height; ++row) {
    std::memcpy(reinterpret_cast<void*>(to.begin + row * to.pitch),
                reinterpret_cast<const void*>(from.begin + row * from.pitch), to.width);
  }
}

// A replayed graph may name memory that has been freed since.
bool StillThere(const Region& region, Place place, int device) {
  if (place == Place::kPageable || PlaceOf(region) == place) return true;
  FailDevice(device, cudaErrorIllegalAddress, "a copy or fill of memory that was freed");
  return false;
}

std::unique_ptr<Operation> MakeOperation(const char* kind, std::function<void()> run) {
  auto operation = std::make_unique<Operation>();
  operation->kind = kind;
  operation->run = std::move(run);
  return operation;
}

cudaError_t Enqueue(Copy copy, cudaStream_t stream, const char* call) {
  const int device = stream->queue->device();
  const bool pageable = copy.to_place == Place::kPageable || copy.from_place == Place::kPageable;
  if (pageable && PointOf(stream).capture != nullptr) {
    return Refuse(cudaErrorStreamCaptureUnsupported,
                  std::string(call) + ": pageable memory cannot be captured; use pinned memory");
  }
  ++TheStatistics().copies;
  std::shared_ptr<std::vector<char>> staged;
  if (copy.from_place == Place::kPageable) {
    staged = std::make_shared<std::vector<char>>(copy.from.width * copy.from.height);
    const Region into =
        RegionOf(staged->data(), copy.from.width, copy.from.height, copy.from.width);
    CopyRows(into, copy.from);
    copy.from = into;
  }
  const cudaError_t error = Submit(stream, MakeOperation("copy", [copy, staged, device] {
                                     if (!StillThere(copy.to, copy.to_place, device)) return;
                                     if (!StillThere(copy.from, copy.from_place, device)) return;
                                     const DeviceAccess access;
                                     CopyRows(copy.to, copy.from);
                                   }));
  if (error != cudaSuccess) return error;
  if (copy.to_place == Place::kPageable) {  // such a copy is over when the call returns
    stream->queue->AwaitIdle();
    return StickyError(device);
  }
  return cudaSuccess;
}

cudaError_t CopyAsynchronously(Copy copy, cudaMemcpyKind kind, cudaStream_t stream,
                               const char* call) {
  if (const cudaError_t error = CheckStream(stream, call); error != cudaSuccess) return error;
  if (copy.to.width == 0 || copy.to.height == 0) return cudaSuccess;
  if (const cudaError_t error = PlaceCopy(copy, kind, call); error != cudaSuccess) return error;
  return Enqueue(copy, stream, call);
}

cudaError_t PlaceFill(const Region& region, const char* call) {
  const auto place = PlaceOf(region);
  if (place.has_value() && *place != Place::kPageable) return cudaSuccess;
  return Refuse(cudaErrorInvalidValue,
                std::string(call) + ": the range does not lie in one allocation");
}

}  // namespace
}  // namespace cuda_emulation

using cuda_emulation::CheckStream;
using cuda_emulation::Copy;
using cuda_emulation::CurrentDevice;
using cuda_emulation::DeviceAccess;
using cuda_emulation::Refuse;
using cuda_emulation::Region;
using cuda_emulation::RegionOf;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  CUDA_EMULATION_ENTER(cudaMemcpyAsync);
  return cuda_emulation::CopyAsynchronously(
      {.to = RegionOf(to, bytes, 1, bytes), .from = RegionOf(from, bytes, 1, bytes)}, kind, stream,
      "cudaMemcpyAsync");
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  CUDA_EMULATION_ENTER(cudaMemcpy2DAsync);
  if (width > to_pitch || width > from_pitch) {
    return Refuse(cudaErrorInvalidValue, "cudaMemcpy2DAsync: rows are wider than their pitch");
  }
  return cuda_emulation::CopyAsynchronously({.to = RegionOf(to, width, height, to_pitch),
                                             .from = RegionOf(from, width, height, from_pitch)},
                                            kind, stream, "cudaMemcpy2DAsync");
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t bytes, cudaStream_t stream) {
  CUDA_EMULATION_ENTER(cudaMemcpyPeerAsync);
  const auto target = cuda_emulation::FindAllocation(to);
  const auto source = cuda_emulation::FindAllocation(from);
  if (!target || !source || target->device != to_device || source->device != from_device) {
    return Refuse(cudaErrorInvalidValue,
                  "cudaMemcpyPeerAsync: the memory is not of the devices that are named");
  }
  return cuda_emulation::CopyAsynchronously(
      {.to = RegionOf(to, bytes, 1, bytes), .from = RegionOf(from, bytes, 1, bytes)},
      cudaMemcpyDeviceToDevice, stream, "cudaMemcpyPeerAsync");
}

// On the calling thread. As on a device, it waits for no stream that was made non-blocking.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  CUDA_EMULATION_ENTER(cudaMemcpy);
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaMemcpy);
  if (bytes == 0) return cudaSuccess;
  Copy copy{.to = RegionOf(to, bytes, 1, bytes), .from = RegionOf(from, bytes, 1, bytes)};
  if (const cudaError_t error = cuda_emulation::PlaceCopy(copy, kind, "cudaMemcpy");
      error != cudaSuccess) {
    return error;
  }
  cuda_emulation::AwaitBlockingStreams(CurrentDevice());
  ++cuda_emulation::TheStatistics().copies;
  const DeviceAccess access;
  cuda_emulation::CopyRows(copy.to, copy.from);
  return cuda_emulation::StickyError(CurrentDevice());
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  CUDA_EMULATION_ENTER(cudaMemsetAsync);
  if (const cudaError_t error = CheckStream(stream, "cudaMemsetAsync"); error != cudaSuccess) {
    return error;
  }
  if (bytes == 0) return cudaSuccess;
  const Region region = RegionOf(memory, bytes, 1, bytes);
  if (const cudaError_t error = cuda_emulation::PlaceFill(region, "cudaMemsetAsync");
      error != cudaSuccess) {
    return error;
  }
  const auto place = *cuda_emulation::PlaceOf(region);
  const int device = stream->queue->device();
  return cuda_emulation::Submit(
      stream, cuda_emulation::MakeOperation("fill", [memory, value, bytes, region, place, device] {
        if (!cuda_emulation::StillThere(region, place, device)) return;
        const DeviceAccess access;
        const cuda_emulation::Loud loud;
        std::memset(memory, value, bytes);
      }));
}

cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  CUDA_EMULATION_ENTER(cudaMemset);
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaMemset);
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t error =
          cuda_emulation::PlaceFill(RegionOf(memory, bytes, 1, bytes), "cudaMemset");
      error != cudaSuccess) {
    return error;
  }
  cuda_emulation::AwaitBlockingStreams(CurrentDevice());
  const DeviceAccess access;
  const cuda_emulation::Loud loud;
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

}  // extern "C"
