#include "text/tokenizer/byte_trie.h"

#include <algorithm>

namespace baton::text {

void ByteTrie::Build(std::vector<std::pair<std::string_view, std::int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.assign(1, Node{});
  labels_.assign(1, 0);
  // The entries below each node, which all share their first `depth` bytes.
  struct Range {
    std::size_t begin;
    std::size_t end;
    std::size_t depth;
  };
  std::vector<Range> ranges = {{0, entries.size(), 0}};
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    auto [at, end, depth] = ranges[i];
    // In sorted order the string that ends here comes first, and of equal ones the last counts.
    for (; at < end && entries[at].first.size() == depth; ++at) {
      if (depth > 0) nodes_[i].value = entries[at].second;
    }
    nodes_[i].first_child = static_cast<std::uint32_t>(nodes_.size());
    while (at < end) {
      const char label = entries[at].first[depth];
      const std::size_t begin = at;
      while (at < end && entries[at].first[depth] == label) ++at;
      nodes_.push_back(Node{});
      labels_.push_back(static_cast<unsigned char>(label));
      ranges.push_back({begin, at, depth + 1});
    }
    nodes_[i].num_children = static_cast<std::uint32_t>(nodes_.size()) - nodes_[i].first_child;
  }
}

std::int32_t ByteTrie::Find(std::string_view whole) const {
  std::uint32_t node = kRoot;
  for (const char byte : whole) {
    if (!Step(node, byte)) return kNone;
  }
  return Value(node);
}

}  // namespace baton::text
