#include "engine/ops/cpu/expert_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::engine::cpu {
namespace {

std::vector<ExpertChoice> Choose(std::vector<float> logits, int count, bool normalize) {
  LayerPlan plan;
  plan.num_experts = static_cast<int>(logits.size());
  plan.experts_per_token = count;
  plan.normalize_expert_weights = normalize;
  std::vector<ExpertChoice> choices(count);
  ChooseExperts(plan, logits.data(), choices.data());
  return choices;
}

std::vector<int> Experts(const std::vector<ExpertChoice>& choices) {
  std::vector<int> experts;
  for (const ExpertChoice& choice : choices) experts.push_back(choice.expert);
  return experts;
}

TEST(ChooseExpertsTest, OfEqualsTheLowerIndexIsChosen) {
  EXPECT_EQ(Experts(Choose({1, 2, 2, 2, 1}, 2, true)), (std::vector<int>{1, 2}));
  EXPECT_EQ(Experts(Choose({0, 0, 0, 0}, 3, true)), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(Experts(Choose({1, 3, 1, 1, 2}, 3, true)), (std::vector<int>{0, 1, 4}));
}

TEST(ChooseExpertsTest, TakesTheLargestInTheOrderOfTheirIndex) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int num_experts = 1 + static_cast<int>(random() % 130);
    const int count = 1 + static_cast<int>(random() % num_experts);
    std::vector<float> logits(num_experts);
    for (float& logit : logits) logit = static_cast<float>(random() % 50) * 0.1f;

    const std::vector<ExpertChoice> choices = Choose(logits, count, seed % 2 == 0);

    std::vector<int> order(num_experts);
    for (int i = 0; i < num_experts; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
    std::sort(order.begin(), order.begin() + count);
    double all = 0;
    double chosen = 0;
    for (const float logit : logits) all += std::exp(logit);
    for (int i = 0; i < count; ++i) chosen += std::exp(logits[order[i]]);
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(choices[i].expert, order[i]);
      const double expected = std::exp(logits[order[i]]) / (seed % 2 == 0 ? chosen : all);
      EXPECT_NEAR(choices[i].weight, expected, 3e-6 * expected);
    }
  }
}

TEST(ChooseExpertsTest, GivesDistinctExpertsForLogitsThatAreNotNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Experts(Choose({nan, nan, nan, nan}, 3, true)), (std::vector<int>{0, 1, 2}));
  std::vector<int> experts = Experts(Choose({1, nan, 3, nan, 2}, 4, true));
  EXPECT_EQ(std::unique(experts.begin(), experts.end()), experts.end());
  EXPECT_TRUE(std::all_of(experts.begin(), experts.end(), [](int e) { return e >= 0 && e < 5; }));
}

// Property: every (row, expert) pair has one slot, in its expert's group, in the order of rows.
TEST(ExpertGroupsTest, EveryChoiceHasASlotAmongItsExperts) {
  ExpertGroups groups;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int num_experts = 1 + static_cast<int>(random() % 20);
    const int count = 1 + static_cast<int>(random() % num_experts);
    const int num_rows = 1 + static_cast<int>(random() % 50);
    std::vector<ExpertChoice> choices;
    for (int row = 0; row < num_rows; ++row) {
      std::vector<float> logits(num_experts);
      for (float& logit : logits) logit = static_cast<float>(random() % 1000);
      for (const ExpertChoice& choice : Choose(logits, count, true)) choices.push_back(choice);
    }

    groups.Assign(choices, count, num_experts);

    ASSERT_EQ(groups.slots().size(), choices.size());
    ASSERT_EQ(groups.rows().size(), choices.size());
    std::vector<int> expert_of(choices.size(), -1);
    int next = 0;
    int last_expert = -1;
    for (const ExpertGroups::Group& group : groups.groups()) {
      EXPECT_EQ(group.first_slot, next);
      EXPECT_GT(group.num_slots, 0);
      EXPECT_GT(group.expert, last_expert);
      last_expert = group.expert;
      for (int i = 0; i < group.num_slots; ++i, ++next) {
        expert_of[next] = group.expert;
        if (i > 0) {
          EXPECT_GT(groups.rows()[next], groups.rows()[next - 1]);
        }
      }
    }
    EXPECT_EQ(next, static_cast<int>(choices.size()));
    for (std::size_t i = 0; i < choices.size(); ++i) {
      EXPECT_EQ(expert_of[groups.slots()[i]], choices[i].expert);
      EXPECT_EQ(groups.rows()[groups.slots()[i]], static_cast<int>(i) / count);
    }
  }
}

}  // namespace
}  // namespace baton::engine::cpu
