#include "text/tokenizer/byte_pair_merge.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace baton::text {
namespace {

// Up to this many symbols a scan for the best pair beats a heap; words are mostly shorter.
constexpr std::size_t kMaxScanned = 48;
constexpr std::int32_t kNoMerge = std::numeric_limits<std::int32_t>::max();

class Watcher {
 public:
  Watcher(MergeWork* work, const MergeObserver* observer) : work_(work), observer_(observer) {}
  void Lookup(std::int32_t left, std::int32_t right, const PairMerge* merge) {
    if (work_ != nullptr) ++work_->num_lookups;
    if (observer_ != nullptr && merge != nullptr) (*observer_)(left, right, *merge);
  }
  void HeapStep() {
    if (work_ != nullptr) ++work_->num_heap_steps;
  }

 private:
  MergeWork* const work_;
  const MergeObserver* const observer_;
};

void MergeByScan(const MergeTable& table, std::vector<std::int32_t>& symbols, Watcher watcher) {
  PairMerge merges[kMaxScanned];  // merges[i] joins symbols[i] and symbols[i + 1]
  std::size_t count = symbols.size();
  const auto look_up = [&](std::size_t i) {
    const PairMerge* merge = table.Find(symbols[i], symbols[i + 1]);
    watcher.Lookup(symbols[i], symbols[i + 1], merge);
    merges[i] = merge == nullptr ? PairMerge{kNoMerge, 0} : *merge;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoMerge) break;
    symbols[best] = merges[best].id;
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    if (best + 2 < count) std::copy(merges + best + 2, merges + count - 1, merges + best + 1);
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  symbols.resize(count);
}

// A merge that was possible when it was pushed; still is if both symbols are what they were.
struct Candidate {
  std::int32_t rank;
  std::uint32_t at;  // the left symbol's index
  std::int32_t left;
  std::int32_t right;
  std::int32_t id;
};

struct GoesLater {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  }
};

void MergeByHeap(const MergeTable& table, std::vector<std::int32_t>& symbols, Watcher watcher) {
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  const std::uint32_t count = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> next(count);
  std::vector<std::uint32_t> previous(count);
  std::priority_queue<Candidate, std::vector<Candidate>, GoesLater> heap;
  const auto push = [&](std::uint32_t at) {
    const std::int32_t right = symbols[next[at]];
    const PairMerge* merge = table.Find(symbols[at], right);
    watcher.Lookup(symbols[at], right, merge);
    if (merge == nullptr) return;
    watcher.HeapStep();
    heap.push({merge->rank, at, symbols[at], right, merge->id});
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == count ? kNone : i + 1;
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) push(i);
  while (!heap.empty()) {
    watcher.HeapStep();
    const Candidate candidate = heap.top();
    heap.pop();
    const std::uint32_t at = candidate.at;
    const std::uint32_t right = next[at];
    if (symbols[at] != candidate.left || right == kNone || symbols[right] != candidate.right) {
      continue;
    }
    symbols[at] = candidate.id;
    symbols[right] = -1;  // gone: no candidate has a negative symbol
    next[at] = next[right];
    if (next[at] != kNone) previous[next[at]] = at;
    if (previous[at] != kNone) push(previous[at]);
    if (next[at] != kNone) push(at);
  }
  std::erase(symbols, -1);
}

}  // namespace

void MergePairs(const MergeTable& table, std::vector<std::int32_t>& symbols, MergeWork* work,
                const MergeObserver* observer) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kMaxScanned) {
    MergeByScan(table, symbols, Watcher(work, observer));
  } else {
    MergeByHeap(table, symbols, Watcher(work, observer));
  }
}

}  // namespace baton::text
