#include "cuda_emulation/fiber.h"
#include <sys/mman.h>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#endif
#if defined(EMU_TSAN_RT) || defined(__SANITIZE_THREAD__)
#define EMU_TSAN 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
extern "C" {
#ifdef EMU_ASAN
void __sanitizer_start_switch_fiber(void** fake, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake, const void** bottom_old, size_t* size_old);
void __asan_unpoison_memory_region(void const volatile*, size_t);
#endif
#ifdef EMU_TSAN
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_set_fiber_name(void*, const char*);
#endif
void CudaEmuSwitch(void** save, void* load);
}
#if defined(__x86_64__)
asm(R"(
.text
.globl CudaEmuSwitch
.type CudaEmuSwitch,@function
CudaEmuSwitch:
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
.size CudaEmuSwitch,.-CudaEmuSwitch
)");
#else
#error "add a context switch for this architecture (or use boost.context)"
#endif
namespace cuda_emulation {
void FiberAdopt(Fiber& f) {
#ifdef EMU_TSAN
  f.tsan = __tsan_get_current_fiber();
#endif
  (void)f;
}
void FiberCreate(Fiber& f, std::size_t size) {
  constexpr std::size_t page = 4096;
  char* p = static_cast<char*>(mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (p == MAP_FAILED) throw std::bad_alloc();
  mprotect(p, page, PROT_NONE);
  f.stack = p + page;
  f.stack_size = size;
#ifdef EMU_TSAN
  f.tsan = __tsan_create_fiber(0);
#endif
}
void FiberReset(Fiber& f, void (*entry)()) {
#ifdef EMU_ASAN
  __asan_unpoison_memory_region(f.stack, f.stack_size);
#endif
  auto top = reinterpret_cast<std::uintptr_t>(f.stack) + f.stack_size;
  // Same-sized stacks put all hot frames into the same cache sets; spread the tops over 16 KiB.
  static std::atomic<unsigned> colour{0};
  if (!f.colour) f.colour = 1 + colour++ % 256;
  top -= std::uintptr_t{f.colour - 1} * 64 * 5 % (16 << 10);
  top &= ~std::uintptr_t{15};
  void** s = reinterpret_cast<void**>(top);
  *--s = nullptr;                                  // keeps (rsp+8)%16==0 at entry, and a zero return address
  *--s = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--s = nullptr;
  f.sp = s;
  f.fake_stack = nullptr;
}
void FiberDestroy(Fiber& f) {
#ifdef EMU_TSAN
  if (f.tsan) __tsan_destroy_fiber(f.tsan);
#endif
  if (f.stack) munmap(static_cast<char*>(f.stack) - 4096, f.stack_size + 4096);
  f = {};
}
static thread_local Fiber* came_from = nullptr;
__attribute__((noinline)) static void Landed(Fiber& self) {
#ifdef EMU_ASAN
  const void* b; size_t n;
  __sanitizer_finish_switch_fiber(self.fake_stack, &b, &n);
  if (came_from && !came_from->stack) { came_from->stack = const_cast<void*>(b); came_from->stack_size = n; }
#endif
  (void)self;
}
void FiberEntered(Fiber& self) { Landed(self); }
void FiberSwitch(Fiber& from, Fiber& to) {
  came_from = &from;
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_size);
#endif
#ifdef EMU_TSAN
  __tsan_switch_to_fiber(to.tsan, 1 /* no_sync */);
#endif
  CudaEmuSwitch(&from.sp, to.sp);
  Landed(from);
}
}  // namespace cuda_emulation
