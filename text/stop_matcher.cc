#include "text/stop_matcher.h"

namespace baton::text {

StopMatcher::StopMatcher(std::span<const std::string> stops, bool include_stop_str_in_output)
    : include_stop_(include_stop_str_in_output), nodes_(1) {
  for (const std::string& stop : stops) {
    stop_num_bytes_.push_back(stop.size());
    if (!stop.empty()) Insert(stop, static_cast<std::int32_t>(stop_num_bytes_.size()) - 1);
  }
  LinkFailures();
}

void StopMatcher::Insert(std::string_view stop, std::int32_t index) {
  std::int32_t at = 0;
  for (const char byte : stop) {
    std::int32_t child = Child(at, byte);
    if (child < 0) {
      child = static_cast<std::int32_t>(nodes_.size());
      nodes_[at].edges.emplace_back(byte, child);
      const std::int32_t depth = nodes_[at].depth + 1;
      nodes_.emplace_back().depth = depth;
    }
    at = child;
  }
  if (nodes_[at].stop < 0) nodes_[at].stop = index;  // of equal stop strings the first is reported
}

void StopMatcher::LinkFailures() {
  // Breadth first, so that a node's failure link, which is shallower, is complete before it.
  std::vector<std::int32_t> order = {0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int32_t parent = order[i];
    for (const auto& [byte, child] : nodes_[parent].edges) {
      nodes_[child].fail = parent == 0 ? 0 : Step(nodes_[parent].fail, byte);
      if (nodes_[child].stop < 0) nodes_[child].stop = nodes_[nodes_[child].fail].stop;
      order.push_back(child);
    }
  }
}

std::int32_t StopMatcher::Child(std::int32_t node, char byte) const {
  for (const auto& [label, child] : nodes_[node].edges) {
    if (label == byte) return child;
  }
  return -1;
}

std::int32_t StopMatcher::Step(std::int32_t state, char byte) const {
  while (true) {
    const std::int32_t child = Child(state, byte);
    if (child >= 0) return child;
    if (state == 0) return 0;
    state = nodes_[state].fail;
  }
}

std::string StopMatcher::Append(std::string_view text) {
  if (stopped()) return {};
  std::string seen = std::move(held_);
  held_.clear();
  const std::size_t num_old = seen.size();
  seen += text;
  for (std::size_t i = num_old; i < seen.size(); ++i) {
    state_ = Step(state_, seen[i]);
    const std::int32_t stop = nodes_[state_].stop;
    if (stop < 0) continue;
    match_ = static_cast<std::size_t>(stop);
    seen.resize(i + 1 - (include_stop_ ? 0 : stop_num_bytes_[*match_]));
    return seen;
  }
  if (!include_stop_) {
    const std::size_t num_safe = seen.size() - nodes_[state_].depth;
    held_ = seen.substr(num_safe);
    seen.resize(num_safe);
  }
  return seen;
}

std::string StopMatcher::Flush() {
  if (stopped()) return {};
  state_ = 0;
  return std::exchange(held_, {});
}

}  // namespace baton::text
