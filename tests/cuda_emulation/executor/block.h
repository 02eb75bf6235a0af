#pragma once
#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "cuda_emulation/executor/fiber.h"
#include "cuda_emulation/kernel_api.h"

// What a running block consists of. All of it belongs to the one OS thread that runs the block.
namespace cuda_emulation {

inline constexpr unsigned kMaxBlockThreads = 1024;
inline constexpr unsigned kWarpThreads = 32;
inline constexpr unsigned kNamedBarriers = 16;  // 0 is __syncthreads

struct Block;
struct Warp;

struct AsyncCopy {
  void* to;
  const void* from;
  int bytes, valid;
  CopyFunction copy;
};

struct Thread {
  Fiber fiber;
  uint3 index{};
  unsigned linear = 0;  // in the block
  Block* block = nullptr;
  Warp* warp = nullptr;
  bool exited = false;
  Site waits_at;  // where it last waited
  std::vector<AsyncCopy> uncommitted;
  std::vector<std::vector<AsyncCopy>> groups;  // oldest first
};

// Lanes that meet for one warp operation. Found by mask: halves of a diverged warp have their own.
struct Rendezvous {
  std::uint32_t mask = 0, arrived = 0;
  CollectiveFunction function = nullptr;
  void* arguments[kWarpThreads];
  unsigned rounds = 0;     // that are over
  char sync_tags[2] = {};  // of even and odd rounds: a lane may be in the next before all left this
};

struct Warp {
  Thread* lanes[kWarpThreads];
  std::uint32_t alive = 0;
  std::vector<Rendezvous> rendezvous;
};

struct Barrier {
  unsigned arrived = 0;
  std::vector<Thread*> waiting;
  Site site;               // of the first to arrive
  unsigned rounds = 0;     // that are over
  char sync_tags[2] = {};  // as those of a rendezvous
};

struct Block {
  dim3 index{};
  unsigned alive = 0;
  Warp warps[kMaxBlockThreads / kWarpThreads];
  Barrier barriers[kNamedBarriers];
  std::byte* dynamic_shared = nullptr;
  std::map<const void*, std::byte*> static_shared;
  std::size_t static_bytes = 0;
};

}  // namespace cuda_emulation
