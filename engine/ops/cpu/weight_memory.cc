#include "engine/ops/cpu/weight_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::engine::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Address space of one region; pages are taken when written, so an unused tail costs nothing.
constexpr std::size_t kRegion = std::size_t{64} << 20;

absl::StatusOr<std::shared_ptr<std::byte>> MapRegion(std::size_t size) {
  const std::size_t mapped = size + kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("no memory for weights: %d bytes refused", mapped));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  auto* aligned = static_cast<std::byte*>(memory) + (kHugePage - address % kHugePage) % kHugePage;
  madvise(aligned, size, MADV_HUGEPAGE);  // a refusal does no harm
  return std::shared_ptr<std::byte>(aligned,
                                    [memory, mapped](std::byte*) { munmap(memory, mapped); });
}

}  // namespace

absl::StatusOr<std::shared_ptr<std::byte>> WeightMemory::Take(std::size_t size) {
  const std::size_t rounded = (size + 63) / 64 * 64;
  if (region_ == nullptr || region_size_ - used_ < rounded) {
    const std::size_t region = std::max(kRegion, (rounded + kHugePage - 1) / kHugePage * kHugePage);
    BATON_ASSIGN_OR_RETURN(region_, MapRegion(region));
    region_size_ = region;
    used_ = 0;
  }
  std::shared_ptr<std::byte> piece(region_, region_.get() + used_);
  used_ += rounded;
  return piece;
}

}  // namespace baton::engine::cpu
