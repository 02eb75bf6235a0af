#pragma once
#include <cstddef>

namespace cuda_emulation {

// A stack and where it stopped; the threads of a block are such. The sanitizers are told of every
// switch. x86-64 only.
struct Fiber {
  void* stack_pointer = nullptr;  // valid while it does not run
  void* stack = nullptr;          // lowest usable address; a guard page lies below
  std::size_t stack_bytes = 0;
  unsigned colour = 0;         // staggers the tops of stacks over the cache's sets
  void* fake_stack = nullptr;  // ASan's
  void* tsan = nullptr;        // TSan's
};

// Describes the calling OS thread's own stack.
void AdoptThread(Fiber& self);
// Gives a fiber its stack, for ever: fibers are kept in pools.
void CreateFiber(Fiber& fiber);
// The next switch to it starts `entry`, which never returns and first calls EnterFiber. What the
// fiber was doing is forgotten, without destructors.
void ResetFiber(Fiber& fiber, void (*entry)());
void EnterFiber(Fiber& self);
// To be called before ResetFiber of a fiber that stopped in the middle of something: what TSan was
// told to ignore there would stay ignored.
void AbandonFiber(Fiber& fiber);
// Stops `from`, which is the caller, and lets `to` go on.
void SwitchFiber(Fiber& from, Fiber& to);

}  // namespace cuda_emulation
