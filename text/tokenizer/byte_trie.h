#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::text {

// A set of byte strings, each with a value, walked byte by byte. Nodes lie in order of depth, so
// the children of a node are neighbours and are found by one memchr. Immutable and thread-safe
// after Build.
class ByteTrie {
 public:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::uint32_t kRoot = 0;

  // Values are not negative. Of equal strings the last one counts; empty ones are left out.
  void Build(std::vector<std::pair<std::string_view, std::int32_t>> entries);

  bool empty() const { return labels_.size() <= 1; }

  // Goes from `node` along `byte`; false where nothing begins so.
  bool Step(std::uint32_t& node, char byte) const {
    if (nodes_.empty()) return false;
    const Node& from = nodes_[node];
    const auto* first = labels_.data() + from.first_child;
    const void* found = std::memchr(first, static_cast<unsigned char>(byte), from.num_children);
    if (found == nullptr) return false;
    node = from.first_child +
           static_cast<std::uint32_t>(static_cast<const unsigned char*>(found) - first);
    return true;
  }

  // What ends at `node`, or kNone.
  std::int32_t Value(std::uint32_t node) const {
    return nodes_.empty() ? kNone : nodes_[node].value;
  }

  std::int32_t Find(std::string_view whole) const;

  // Calls `visit(length, value)` for each entry that `text` begins with, the shortest first. Time:
  // O(length of the longest entry).
  template <class Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    std::uint32_t node = kRoot;
    for (std::size_t i = 0; i < text.size() && Step(node, text[i]); ++i) {
      if (nodes_[node].value != kNone) visit(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    std::uint32_t first_child = 0;
    std::uint32_t num_children = 0;
    std::int32_t value = kNone;
  };
  std::vector<Node> nodes_;
  std::vector<unsigned char> labels_;  // labels_[i]: the byte that leads to node i
};

}  // namespace baton::text
