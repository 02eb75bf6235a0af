// Minimal stackful context switch with sanitizer annotations.
#pragma once
#include <cstddef>
namespace cuda_emulation {
struct Fiber {
  void* sp = nullptr;          // saved stack pointer
  void* stack = nullptr;       // lowest usable address (guard page below)
  std::size_t stack_size = 0;
  void* fake_stack = nullptr;  // ASan
  unsigned colour = 0;
  void* tsan = nullptr;        // TSan fiber handle
};
void FiberAdopt(Fiber& self);                                     // the calling OS thread's own context
void FiberCreate(Fiber& f, std::size_t stack_size);
void FiberReset(Fiber& f, void (*entry)());                       // (re)starts at entry on next switch
void FiberDestroy(Fiber& f);
void FiberSwitch(Fiber& from, Fiber& to);
void FiberEntered(Fiber& self);                                   // first statement of every entry function
}  // namespace cuda_emulation
