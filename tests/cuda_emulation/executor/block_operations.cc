// What the threads of a block share: barriers, fences, shared memory, cp.async.
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "cuda_emulation/executor/barrier_sites.h"
#include "cuda_emulation/executor/worker.h"
#include "cuda_emulation/sanitizers.h"

namespace cuda_emulation {
namespace {

// What a block may have without cudaFuncSetAttribute; nvcc refuses more of static variables.
constexpr std::size_t kMaxStaticBytes = std::size_t{48} << 10;

void CheckCopy(void* to, const void* from, int bytes, int valid) {
  const auto misaligned = [bytes](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % static_cast<unsigned>(bytes) != 0;
  };
  if (misaligned(to) || misaligned(from)) {
    current_worker->Fail("cp.async of " + std::to_string(bytes) +
                         " bytes with an address that is no multiple of as many");
  }
  if (valid < 0 || valid > bytes) {
    current_worker->Fail("cp.async of " + std::to_string(bytes) + " bytes, of which " +
                         std::to_string(valid) + " valid");
  }
}

bool Same(const Site& a, const Site& b) {
  return a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
}

}  // namespace

void BlockSync(unsigned id, unsigned threads, const Site& site) {
  if (MeetAndMaySkip(site)) return;
  Quiet quiet;
  Thread* self = current_thread;
  Worker& worker = *current_worker;
  Block& block = *self->block;
  if (id >= kNamedBarriers || threads % kWarpThreads != 0) {
    worker.Fail("barrier " + std::to_string(id) + " of " + std::to_string(threads) +
                " threads at " + Describe(site) + ": ids are 0..15, counts whole warps");
  }
  Barrier& barrier = block.barriers[id];
  if (barrier.arrived == 0) {
    barrier.site = site;
  } else if (id == 0 && !Same(barrier.site, site)) {
    worker.Fail("divergent __syncthreads: threads of one block meet at " + Describe(barrier.site) +
                " and at " + Describe(site));
  }
  char* tag = &barrier.sync_tags[barrier.rounds % 2];
  Release(tag);
  if (++barrier.arrived == (threads == 0 ? block.alive : threads)) {
    barrier.arrived = 0;
    ++barrier.rounds;
    for (Thread* waiting : barrier.waiting) worker.MakeReady(waiting);
    barrier.waiting.clear();
  } else {
    barrier.waiting.push_back(self);
    worker.Wait(self, site);
  }
  Acquire(tag);
}

// One tag for all fences: a fence sees what every earlier fence followed. That is more order than
// a device gives to threads that share no flag, but none where a fence is missing.
void Fence() {
  static char fence_tag = 0;
  Acquire(&fence_tag);
  Release(&fence_tag);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void* StaticShared(const void* key, std::size_t bytes, std::size_t alignment) {
  Quiet quiet;
  Block& block = *current_thread->block;
  std::byte*& storage = block.static_shared[key];
  if (storage == nullptr) {
    block.static_bytes += (bytes + alignment - 1) / alignment * alignment;
    if (block.static_bytes > kMaxStaticBytes) {
      current_worker->Fail("static shared memory of " + std::to_string(block.static_bytes) +
                           " bytes, limit " + std::to_string(kMaxStaticBytes) +
                           "; use dynamic shared memory");
    }
    storage = current_worker->AllocateShared(bytes);
  }
  return storage;
}

void* DynamicShared() { return current_thread->block->dynamic_shared; }

void CopyAsync(void* to, const void* from, int bytes, int valid, CopyFunction copy) {
  CheckCopy(to, from, bytes, valid);
  if (!current_worker->NextIsLate()) {
    copy(to, from, bytes, valid);
    return;
  }
  Quiet quiet;
  current_thread->uncommitted.push_back({to, from, bytes, valid, copy});
}

void CopyAsyncCommit() {
  Quiet quiet;
  Thread* self = current_thread;
  self->groups.push_back(std::move(self->uncommitted));
  self->uncommitted.clear();
}

void CopyAsyncWait(int groups_left, const Site& site) {
  if (MeetAndMaySkip(site)) return;
  auto& groups = current_thread->groups;
  while (static_cast<int>(groups.size()) > groups_left) {
    for (const AsyncCopy& copy : groups.front()) {
      copy.copy(copy.to, copy.from, copy.bytes, copy.valid);
    }
    Quiet quiet;
    groups.erase(groups.begin());
  }
}

void DeviceFail(const std::string& what) { current_worker->Fail(what); }

}  // namespace cuda_emulation
