// Warp operations: one rendezvous serves them all.
#include "cuda_emulation/executor/barrier_sites.h"
#include "cuda_emulation/executor/worker.h"
#include "cuda_emulation/sanitizers.h"

namespace cuda_emulation {
namespace {

Rendezvous& Find(Warp& warp, std::uint32_t mask) {
  Quiet quiet;
  for (Rendezvous& known : warp.rendezvous) {
    if (known.mask == mask) return known;
  }
  warp.rendezvous.reserve(kWarpThreads);  // references stay valid: lanes wait with one in hand
  Rendezvous& added = warp.rendezvous.emplace_back();
  added.mask = mask;
  return added;
}

}  // namespace

unsigned LaneId() { return current_thread->linear % kWarpThreads; }

void WarpCollective(std::uint32_t mask, void* arguments, CollectiveFunction function,
                    const Site& site, bool reads_memory) {
  Thread* self = current_thread;
  Worker& worker = *current_worker;
  Warp& warp = *self->warp;
  const unsigned lane = self->linear % kWarpThreads;
  worker.CountCollective();
  if ((mask >> lane & 1u) == 0) {
    worker.Fail("warp operation at " + Describe(site) +
                " with a mask that does not name the calling lane");
  }
  if ((mask & ~warp.alive) != 0) {
    worker.Fail("warp operation at " + Describe(site) +
                " names lanes that do not exist or have exited");
  }
  Rendezvous& meeting = Find(warp, mask);
  if (meeting.arrived == 0) {
    meeting.function = function;
  } else if (meeting.function != function) {
    worker.Fail("lanes of one warp meet in different warp operations at " + Describe(site));
  }
  meeting.arguments[lane] = arguments;
  meeting.arrived |= 1u << lane;
  if (meeting.arrived != mask) {
    worker.Wait(self, site);
    return;
  }
  meeting.arrived = 0;
  ++meeting.rounds;
  if (function != nullptr && reads_memory) {
    function(meeting.arguments, mask);
  } else if (function != nullptr) {
    Quiet quiet;  // exchanges registers through the lanes' stacks
    function(meeting.arguments, mask);
  }
  for (unsigned other = 0; other < kWarpThreads; ++other) {
    if ((mask >> other & 1u) != 0 && other != lane) worker.MakeReady(warp.lanes[other]);
  }
}

void WarpSync(std::uint32_t mask, const Site& site) {
  if (MeetAndMaySkip(site)) return;
  Rendezvous& meeting = Find(*current_thread->warp, mask);
  char* tag = &meeting.sync_tags[meeting.rounds % 2];
  Release(tag);
  WarpCollective(mask, nullptr, nullptr, site);
  Acquire(tag);
}

}  // namespace cuda_emulation
