// What was made and not given back, for tests and, on demand, at exit.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cuda_emulation/controls.h"
#include "cuda_emulation/options.h"
#include "cuda_emulation/runtime/graph.h"

namespace cuda_emulation {
namespace {

constexpr int kLeakExitCode = 99;

void CheckAtExit() {
  const LiveObjects left = CountLiveObjects();
  if (left == LiveObjects{}) return;
  std::fprintf(stderr,
               "cuda_emulation: left at exit: %zu device allocations, %zu host allocations, %zu "
               "streams, %zu events, %zu graphs\n",
               left.device_allocations, left.host_allocations, left.streams, left.events,
               left.graphs);
  std::fflush(nullptr);
  _exit(kLeakExitCode);
}

// Registered before main, so that it runs after everything that main's code registers.
const bool registered = [] {
  if (TheOptions().check_leaks) std::atexit(&CheckAtExit);
  return true;
}();

}  // namespace

LiveObjects CountLiveObjects() {
  LiveObjects objects;
  CountAllocations(objects);
  CountStreams(objects);
  CountEvents(objects);
  CountGraphs(objects);
  return objects;
}

}  // namespace cuda_emulation
