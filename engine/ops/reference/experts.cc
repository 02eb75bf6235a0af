#include "engine/ops/reference/experts.h"

#include <algorithm>
#include <cmath>

namespace baton::engine::reference {
namespace {

// Indices of the `count` largest, in ascending order. Compares values themselves, since rounding
// can make probabilities equal that are not. Takes one per pass, so that no NaN leads it astray.
std::vector<int> Largest(std::span<const float> values, int count) {
  std::vector<int> chosen;
  for (int i = 0; i < count; ++i) {
    int best = -1;
    for (int candidate = 0; candidate < static_cast<int>(values.size()); ++candidate) {
      if (std::find(chosen.begin(), chosen.end(), candidate) != chosen.end()) continue;
      if (best < 0 || values[candidate] > values[best]) best = candidate;
    }
    chosen.push_back(best);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace

std::vector<ExpertShare> ChooseExperts(std::span<const float> router_logits, int count,
                                       bool normalize) {
  const double highest = *std::max_element(router_logits.begin(), router_logits.end());
  const auto unscaled = [&](int expert) { return std::exp(router_logits[expert] - highest); };
  const std::vector<int> chosen = Largest(router_logits, count);
  double total = 0;
  if (normalize) {
    for (const int expert : chosen) total += unscaled(expert);
  } else {
    for (const float logit : router_logits) total += std::exp(logit - highest);
  }
  std::vector<ExpertShare> shares;
  for (const int expert : chosen) {
    shares.push_back({expert, static_cast<float>(unscaled(expert) / total)});
  }
  return shares;
}

}  // namespace baton::engine::reference
