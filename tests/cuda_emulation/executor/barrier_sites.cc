#include "cuda_emulation/executor/barrier_sites.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulation/controls.h"
#include "cuda_emulation/options.h"
#include "cuda_emulation/sanitizers.h"

namespace cuda_emulation {
namespace {

struct Sites {
  std::mutex mutex;
  std::set<std::pair<const char*, int>> met;  // a file has one name per source that includes it
  std::string skipped;
};

void AppendAtExit() {
  std::FILE* file = std::fopen(TheOptions().barriers_file.c_str(), "a");
  if (file == nullptr) return;
  for (const std::string& site : BarriersMet()) std::fprintf(file, "%s\n", site.c_str());
  std::fclose(file);
}

Sites& TheSites() {
  static auto* sites = [] {
    auto* made = new Sites;
    made->skipped = TheOptions().skip_barrier;
    if (!TheOptions().barriers_file.empty()) std::atexit(&AppendAtExit);
    return made;
  }();
  return *sites;
}

std::string Name(const char* file, int line) {
  return std::string(file) + ":" + std::to_string(line);
}

// The sites seen lately by this OS thread, so that most barriers cost one comparison. Cleared when
// the skipped site changes.
std::atomic<unsigned> generation{1};
struct Known {
  unsigned generation = 0;
  const char* file = nullptr;
  int line = 0;
  bool skip = false;
};
constexpr std::size_t kKnown = 64;
thread_local Known known[kKnown];

bool LookUp(const Site& site) {
  Quiet quiet;
  UnseenLocks unseen;
  Sites& sites = TheSites();
  const std::lock_guard lock(sites.mutex);
  sites.met.emplace(site.file, site.line);
  return !sites.skipped.empty() && Name(site.file, site.line).ends_with("/" + sites.skipped);
}

}  // namespace

bool MeetAndMaySkip(const Site& site) {
  Known& entry = known[(static_cast<unsigned>(site.line) * 7u) % kKnown];
  const unsigned now = generation.load(std::memory_order_relaxed);
  if (entry.generation != now || entry.file != site.file || entry.line != site.line) {
    entry = {now, site.file, site.line, LookUp(site)};
  }
  return entry.skip;
}

void SkipBarrier(const std::string& site) {
  const std::lock_guard lock(TheSites().mutex);
  TheSites().skipped = site;
  ++generation;
}

std::vector<std::string> BarriersMet() {
  const std::lock_guard lock(TheSites().mutex);
  std::set<std::string> names;
  for (const auto& [file, line] : TheSites().met) names.insert(Name(file, line));
  return {names.begin(), names.end()};
}

}  // namespace cuda_emulation
