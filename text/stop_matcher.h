#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::text {

// Watches one output stream for stop strings. Text goes in as it is detokenized; out comes what can
// safely be shown: a tail that may still become a stop string is held back, and nothing of a stop
// string (nor of what follows it) is ever given out, however the text was cut. The match that ends
// first wins; of two that end together, the longer one. Aho & Corasick 1975: amortised
// O(number of stop strings) per byte, whatever their length. Not thread-safe; one per stream.
class StopMatcher {
 public:
  // Empty strings in `stops` match nothing. With `include_stop_str_in_output` the text up to and
  // with the stop string is given out, and so nothing has to be held back.
  explicit StopMatcher(std::span<const std::string> stops, bool include_stop_str_in_output = false);

  // Takes the next text and returns what may be shown now. After a match, returns nothing.
  std::string Append(std::string_view text);

  // Ends a stream that no stop string ended: returns what was held back.
  std::string Flush();

  // The index in `stops` of the one that matched, once it has.
  std::optional<std::size_t> match() const { return match_; }
  bool stopped() const { return match_.has_value(); }

 private:
  // A node of the trie of stop strings; stands for the prefix on the path to it.
  struct Node {
    std::vector<std::pair<char, std::int32_t>> edges;  // at most one for each stop string
    std::int32_t depth = 0;                            // bytes in the prefix
    std::int32_t stop = -1;  // the longest stop string that is a suffix of the prefix, or -1
    std::int32_t fail = 0;   // the longest proper suffix of the prefix that is a prefix, too
  };
  void Insert(std::string_view stop, std::int32_t index);
  void LinkFailures();
  std::int32_t Child(std::int32_t node, char byte) const;  // -1 when there is none
  std::int32_t Step(std::int32_t state, char byte) const;

  const bool include_stop_;
  std::vector<std::size_t> stop_num_bytes_;
  std::vector<Node> nodes_;  // nodes_[0] is the root
  std::int32_t state_ = 0;
  std::string held_;  // the last nodes_[state_].depth bytes seen; empty with include_stop_
  std::optional<std::size_t> match_;
};

}  // namespace baton::text
