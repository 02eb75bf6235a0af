#include "engine/sampling/top_candidates.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <limits>

namespace baton::engine {
namespace {

// Orders like (score ascending, id descending), so that the greatest key is the best candidate.
std::uint64_t Key(float score, std::size_t id) {
  // -0 and +0 are equal scores and must tie.
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(score == 0.0f ? 0.0f : score);
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return std::uint64_t{ordered} << 32 | (0xFFFFFFFFu - static_cast<std::uint32_t>(id));
}

std::int32_t IdOf(std::uint64_t key) {
  return static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<std::uint32_t>(key));
}

}  // namespace

std::span<const std::int32_t> TopCandidates::Select(std::span<const float> scores, int count) {
  const std::size_t wanted = std::clamp<std::size_t>(std::max(count, 0), 0, scores.size());
  keys_.clear();
  ids_.clear();
  if (wanted == 0) return {};
  const auto shrink = [&] {
    if (keys_.size() <= wanted) return;
    std::nth_element(keys_.begin(), keys_.begin() + wanted - 1, keys_.end(), std::greater<>());
    keys_.resize(wanted);
  };
  // Room to gather before the kept set is cut back: the larger, the fewer cuts.
  const std::size_t limit = std::min(scores.size(), 2 * wanted + 256);
  float worst_kept = -std::numeric_limits<float>::infinity();
  bool full = false;
  for (std::size_t id = 0; id < scores.size(); ++id) {
    // Once `wanted` are kept, a later id needs a strictly better score.
    if (full && !(scores[id] > worst_kept)) continue;
    keys_.push_back(Key(scores[id], id));
    if (keys_.size() >= limit) {
      shrink();
      if (keys_.size() == wanted) {
        full = true;
        worst_kept = scores[IdOf(*std::min_element(keys_.begin(), keys_.end()))];
      }
    }
  }
  shrink();
  std::sort(keys_.begin(), keys_.end(), std::greater<>());
  ids_.reserve(keys_.size());
  for (const std::uint64_t key : keys_) ids_.push_back(IdOf(key));
  return ids_;
}

}  // namespace baton::engine
