#include "engine/sampling/nucleus_selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

std::vector<std::int32_t> BySorting(const std::vector<float>& weights, double needed) {
  std::vector<std::int32_t> ids(weights.size()), kept;
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::int32_t a, std::int32_t b) { return weights[a] > weights[b]; });
  double reached = 0;
  for (const std::int32_t id : ids) {
    if (weights[id] == 0.0f) break;
    kept.push_back(id);
    reached += weights[id];
    if (reached >= needed) break;
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// Property: the selection is what a stable sort gives. Weights are multiples of 2^-20, so that
// sums in any order are exact and a cut is never a matter of rounding.
TEST(NucleusSelectorTest, AgreesWithAFullSort) {
  NucleusSelector nucleus;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::exponential_distribution<double> exponential(1 + random() % 8);
    std::vector<float> weights(1 + random() % 3000);
    const double step = seed % 3 == 0 ? 16 : 1 << 20;  // coarse steps make ties
    for (float& weight : weights) {
      weight = static_cast<float>(std::floor(std::exp(-exponential(random)) * step) / step);
    }
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double needed = total * (random() % 1100) / 1000.0;

    const auto kept = nucleus.Select(weights, needed);

    ASSERT_EQ(std::vector<std::int32_t>(kept.begin(), kept.end()), BySorting(weights, needed))
        << weights.size() << " weights, " << needed << " of " << total;
  }
}

}  // namespace
}  // namespace baton::engine
