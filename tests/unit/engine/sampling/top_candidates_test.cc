#include "engine/sampling/top_candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

std::vector<std::int32_t> BySorting(const std::vector<float>& scores, int count) {
  std::vector<std::int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::int32_t a, std::int32_t b) { return scores[a] > scores[b]; });
  ids.resize(std::min<std::size_t>(count, ids.size()));
  return ids;
}

// Property: the selection is what a stable sort gives, with many ties, infinities and both zeros.
TEST(TopCandidatesTest, AgreesWithAFullSort) {
  TopCandidates top;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<float> scores(1 + random() % 3000);
    const int num_values = 1 + static_cast<int>(random() % 500);
    for (float& score : scores) {
      const int value = static_cast<int>(random() % num_values) - num_values / 2;
      score = random() % 50 == 0 ? -std::numeric_limits<float>::infinity()
                                 : static_cast<float>(value) * (random() % 2 == 0 ? 1.0f : -1.0f);
    }
    const int count = static_cast<int>(random() % (scores.size() + 3));

    const auto ids = top.Select(scores, count);

    ASSERT_EQ(std::vector<std::int32_t>(ids.begin(), ids.end()), BySorting(scores, count))
        << scores.size() << " scores, best " << count;
  }
}

}  // namespace
}  // namespace baton::engine
