#include "cuda_emulation/executor/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

#if !defined(__x86_64__)
#error "the context switch is written for x86-64; add one for this architecture"
#endif

extern "C" {
#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_start_switch_fiber(void** fake_stack, const void* stack, std::size_t bytes);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** stack, std::size_t* bytes);
void __asan_unpoison_memory_region(void const volatile* begin, std::size_t bytes);
// The message of a failure is built on the fiber that is then abandoned, without destructors.
const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() {
  return "leak:cuda_emulation::BlockSync\nleak:cuda_emulation::WarpCollective\n"
         "leak:cuda_emulation::StaticShared\nleak:cuda_emulation::CopyAsync\n"
         "leak:cuda_emulation::DeviceFail\nleak:baton::gpu::DeviceAssert\n";
}
#endif
#if defined(CUDA_EMULATION_TSAN)
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
#endif
// Saves the callee-saved registers and the stack pointer, takes the other stack, and returns there.
// It ends in `ret`: all fibers share one path of calls, so that the return predictor is right.
void CudaEmulationSwitchStack(void** save_stack_pointer, void* stack_pointer);
}
asm(R"(
.text
.globl CudaEmulationSwitchStack
.type CudaEmulationSwitchStack,@function
CudaEmulationSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size CudaEmulationSwitchStack,.-CudaEmulationSwitchStack
)");

namespace cuda_emulation {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kSavedRegisters = 6;
// Kernels keep whole tiles in arrays; without optimisation and under the sanitizers these lie on
// the stack many times over. Only touched pages cost memory.
#if defined(__SANITIZE_ADDRESS__) || defined(CUDA_EMULATION_TSAN)
constexpr std::size_t kStackBytes = std::size_t{512} << 10;
#else
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
#endif

thread_local Fiber* came_from = nullptr;

__attribute__((noinline)) void Landed([[maybe_unused]] Fiber& self) {
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(self.fake_stack, &stack, &bytes);
  if (came_from != nullptr && came_from->stack == nullptr) {  // an adopted thread's
    came_from->stack = const_cast<void*>(stack);
    came_from->stack_bytes = bytes;
  }
#endif
}

}  // namespace

void AdoptThread([[maybe_unused]] Fiber& self) {
  self = Fiber{};
#if defined(CUDA_EMULATION_TSAN)
  self.tsan = __tsan_get_current_fiber();
#endif
}

void CreateFiber(Fiber& fiber) {
  void* memory = mmap(nullptr, kStackBytes + kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kPage, PROT_NONE);
  fiber.stack = static_cast<char*>(memory) + kPage;
  fiber.stack_bytes = kStackBytes;
  // Equally aligned stacks put all hot frames into the same cache sets: 1.1 to 1.5 times slower.
  static std::atomic<unsigned> next_colour{0};
  fiber.colour = next_colour.fetch_add(1) % 256;
#if defined(CUDA_EMULATION_TSAN)
  fiber.tsan = __tsan_create_fiber(0);
#endif
}

void ResetFiber(Fiber& fiber, void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber.stack, fiber.stack_bytes);
#endif
  auto top = reinterpret_cast<std::uintptr_t>(fiber.stack) + fiber.stack_bytes;
  top -= std::uintptr_t{fiber.colour} * 320 % (std::uintptr_t{16} << 10);
  top &= ~std::uintptr_t{15};
  void** at = reinterpret_cast<void**>(top);
  *--at = nullptr;  // a return address for entry, which aligns its frame
  *--at = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--at = nullptr;
  fiber.stack_pointer = at;
  fiber.fake_stack = nullptr;
}

void AbandonFiber([[maybe_unused]] Fiber& fiber) {
#if defined(CUDA_EMULATION_TSAN)
  // Another stack: to TSan the old one is a thread's that never ended.
  munmap(static_cast<char*>(fiber.stack) - kPage, fiber.stack_bytes + kPage);
  CreateFiber(fiber);
#endif
}

void EnterFiber(Fiber& self) { Landed(self); }

void SwitchFiber(Fiber& from, Fiber& to) {
  came_from = &from;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
#endif
#if defined(CUDA_EMULATION_TSAN)
  constexpr unsigned kNoSync = 1;  // a switch orders nothing; only barriers do
  __tsan_switch_to_fiber(to.tsan, kNoSync);
#endif
  CudaEmulationSwitchStack(&from.stack_pointer, to.stack_pointer);
  Landed(from);
}

}  // namespace cuda_emulation
