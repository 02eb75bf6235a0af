#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton::text {

struct PairMerge {
  std::int32_t rank = 0;  // lower goes first
  std::int32_t id = 0;    // the token the two become
};

// The merges of a byte-pair vocabulary, by the two ids.
class MergeTable {
 public:
  void Reserve(std::size_t count) { merges_.reserve(count); }
  // Keeps the first merge of a pair; false when the pair was known.
  bool Add(std::int32_t left, std::int32_t right, PairMerge merge) {
    return merges_.try_emplace(Key(left, right), merge).second;
  }
  const PairMerge* Find(std::int32_t left, std::int32_t right) const {
    const auto it = merges_.find(Key(left, right));
    return it == merges_.end() ? nullptr : &it->second;
  }
  std::size_t size() const { return merges_.size(); }

 private:
  static std::uint64_t Key(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
  }
  absl::flat_hash_map<std::uint64_t, PairMerge> merges_;
};

// Work done, for tests of its growth.
struct MergeWork {
  std::size_t num_lookups = 0;     // in the table
  std::size_t num_heap_steps = 0;  // pushes and pops
};

// Called for each pair that has a merge when the two become neighbours, in SentencePiece's order.
using MergeObserver =
    std::function<void(std::int32_t left, std::int32_t right, const PairMerge& merge)>;

// Merges neighbours in `symbols`, the pair of the lowest rank first and the leftmost of equals,
// until no pair has a merge. Symbols are not negative. O(n log n). Sennrich et al. 2016
// (arXiv:1508.07909), with the heap and linked list of SentencePiece. `work`, when given, counts
// what was done; `observer`, when given, sees the pairs.
void MergePairs(const MergeTable& table, std::vector<std::int32_t>& symbols,
                MergeWork* work = nullptr, const MergeObserver* observer = nullptr);

}  // namespace baton::text
