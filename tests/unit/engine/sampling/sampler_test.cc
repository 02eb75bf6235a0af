#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

SampledToken SampleFrom(std::vector<float> logits, const SamplingParams& params,
                        const std::vector<std::int32_t>& prompt = {},
                        const std::vector<std::int32_t>& output = {}) {
  Sampler sampler;
  return sampler.Sample(params, prompt, output, logits);
}

// How often each token is drawn over `draws` seeds.
std::map<std::int32_t, int> Histogram(const std::vector<float>& logits, SamplingParams params,
                                      int draws) {
  Sampler sampler;
  std::map<std::int32_t, int> counts;
  for (int seed = 0; seed < draws; ++seed) {
    params.seed = seed;
    std::vector<float> copy = logits;
    ++counts[sampler.Sample(params, {}, {}, copy).token];
  }
  return counts;
}

std::set<std::int32_t> Support(const std::vector<float>& logits, const SamplingParams& params) {
  std::set<std::int32_t> tokens;
  for (const auto& [token, count] : Histogram(logits, params, 4000)) tokens.insert(token);
  return tokens;
}

TEST(SamplerTest, GreedyTakesTheBestAndTheLowestOfEquals) {
  EXPECT_EQ(SampleFrom({1, 5, 3, 5}, Greedy()).token, 1);
}

TEST(SamplerTest, DrawsInProportionToTheProbabilities) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};
  constexpr int kDraws = 20000;

  const auto counts = Histogram(logits, SamplingParams{}, kDraws);

  EXPECT_NEAR(counts.at(0), 0.1 * kDraws, 4 * std::sqrt(0.1 * 0.9 * kDraws));
  EXPECT_NEAR(counts.at(1), 0.6 * kDraws, 4 * std::sqrt(0.6 * 0.4 * kDraws));
  EXPECT_NEAR(counts.at(2), 0.3 * kDraws, 4 * std::sqrt(0.3 * 0.7 * kDraws));
}

TEST(SamplerTest, TemperatureSharpensAndFlattens) {
  SamplingParams params;
  params.temperature = 0.5f;  // squares the ratio 1 : 2 to 1 : 4

  const auto counts = Histogram({0.0f, std::log(2.0f)}, params, 20000);

  EXPECT_NEAR(counts.at(1), 16000, 4 * std::sqrt(0.8 * 0.2 * 20000));
}

TEST(SamplerTest, TopKKeepsTheBestK) {
  SamplingParams params;
  params.top_k = 2;

  EXPECT_EQ(Support({1.0f, 1.1f, 1.2f, 1.05f}, params), (std::set<std::int32_t>{1, 2}));
}

TEST(SamplerTest, TopPKeepsTheSmallestSetThatReachesIt) {
  const std::vector<float> logits = {std::log(0.05f), std::log(0.5f), std::log(0.3f),
                                     std::log(0.15f)};
  SamplingParams params;

  params.top_p = 0.75f;
  EXPECT_EQ(Support(logits, params), (std::set<std::int32_t>{1, 2}));
  params.top_p = 0.9f;
  EXPECT_EQ(Support(logits, params), (std::set<std::int32_t>{1, 2, 3}));
  params.top_p = 0.0f;
  EXPECT_EQ(Support(logits, params), (std::set<std::int32_t>{1}));
}

TEST(SamplerTest, TopPTakesItsShareOfWhatTopKLeft) {
  // Of the two that top_k leaves, 0.5 and 0.3, the first alone is 62 %.
  const std::vector<float> logits = {std::log(0.05f), std::log(0.5f), std::log(0.3f),
                                     std::log(0.15f)};
  SamplingParams params;
  params.top_k = 2;
  params.top_p = 0.6f;

  EXPECT_EQ(Support(logits, params), (std::set<std::int32_t>{1}));
}

TEST(SamplerTest, MinPKeepsWhatReachesAShareOfTheBest) {
  const std::vector<float> logits = {std::log(0.04f), std::log(0.5f), std::log(0.3f),
                                     std::log(0.16f)};
  SamplingParams params;
  params.min_p = 0.5f;

  EXPECT_EQ(Support(logits, params), (std::set<std::int32_t>{1, 2}));
  params.top_k = 4;
  EXPECT_EQ(Support(logits, params), (std::set<std::int32_t>{1, 2}));
}

// Property: a filtered draw falls inside the set that the definition gives, over a real-sized
// vocabulary and nuclei larger than the first look.
TEST(SamplerTest, FiltersAgreeWithTheirDefinitionOnRandomLogits) {
  Sampler sampler;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 0.5f + static_cast<float>(seed % 4));
    std::vector<float> logits(20000);
    for (float& logit : logits) logit = normal(random);
    SamplingParams params;
    params.seed = seed;
    params.temperature = 0.5f + static_cast<float>(seed % 3);
    params.top_p = 0.05f + 0.9f * static_cast<float>(random() % 1000) / 1000.0f;
    params.top_k = seed % 2 == 0 ? 0 : 1 + static_cast<int>(random() % 5000);
    std::vector<double> sorted(logits.begin(), logits.end());
    std::sort(sorted.rbegin(), sorted.rend());
    if (params.top_k > 0) sorted.resize(params.top_k);
    double total = 0, cumulative = 0, lowest = sorted[0];
    for (const double l : sorted) total += std::exp((l - sorted[0]) / params.temperature);
    for (const double l : sorted) {
      lowest = l;
      cumulative += std::exp((l - sorted[0]) / params.temperature);
      if (cumulative >= params.top_p * total * (1 + 1e-6)) break;  // float and double sums differ
    }

    for (int position = 0; position < 20; ++position) {
      std::vector<float> copy = logits;
      const std::vector<std::int32_t> output(position, 0);
      const auto token = sampler.Sample(params, {}, output, copy).token;
      ASSERT_GE(logits[token], lowest) << "position " << position;
    }
  }
}

TEST(SamplerTest, RepetitionPenaltyShrinksWhatWasSeenOnceEach) {
  SamplingParams params = Greedy();
  params.repetition_penalty = 2.0f;

  // 4 / 2 < 3 although token 0 was seen twice; a negative logit is multiplied.
  EXPECT_EQ(SampleFrom({4.0f, 1.5f, 3.0f}, params, {0, 0}).token, 2);
  EXPECT_EQ(SampleFrom({4.0f, 1.5f}, params, {0, 0}).token, 0);
  EXPECT_EQ(SampleFrom({-1.0f, -1.5f}, params, {}, {0}).token, 1);
}

TEST(SamplerTest, PresenceAndFrequencyPenaltiesCountOutputOnly) {
  SamplingParams params = Greedy();
  params.presence_penalty = 1.0f;
  params.frequency_penalty = 0.5f;

  EXPECT_EQ(SampleFrom({3.0f, 2.0f}, params, {0, 0, 0, 0}).token, 0);
  EXPECT_EQ(SampleFrom({3.0f, 1.6f}, params, {}, {0}).token, 1);        // 3 - 1 - 0.5 < 1.6
  EXPECT_EQ(SampleFrom({3.0f, 1.4f}, params, {}, {0}).token, 0);        // 1.5 > 1.4
  EXPECT_EQ(SampleFrom({3.0f, 0.6f}, params, {}, {0, 0, 0}).token, 1);  // 3 - 1 - 1.5 < 0.6
}

TEST(SamplerTest, PenaltiesLeaveNoTraceForTheNextCall) {
  Sampler sampler;
  SamplingParams params = Greedy();
  params.frequency_penalty = 1.0f;
  std::vector<float> first = {3.0f, 2.5f}, second = {3.0f, 2.5f};
  const std::vector<std::int32_t> seen = {0};

  EXPECT_EQ(sampler.Sample(params, {}, seen, first).token, 1);
  EXPECT_EQ(sampler.Sample(params, {}, {}, second).token, 0);
}

TEST(SamplerTest, LogitBiasIsAddedAndForeignIdsAreIgnored) {
  SamplingParams params = Greedy();
  params.logit_bias = {{1, 10.0f}, {99, 100.0f}, {-1, 100.0f}};

  EXPECT_EQ(SampleFrom({3.0f, 1.0f}, params).token, 1);
}

TEST(SamplerTest, StopTokensCannotBeSampledBeforeMinTokens) {
  SamplingParams params = Greedy();
  params.min_tokens = 2;
  params.stop_token_ids = {0};

  EXPECT_EQ(SampleFrom({9.0f, 1.0f}, params, {}, {1}).token, 1);
  EXPECT_EQ(SampleFrom({9.0f, 1.0f}, params, {}, {1, 1}).token, 0);
}

TEST(SamplerTest, ReportsLogprobsOfTheRawLogits) {
  SamplingParams params = Greedy();
  params.logprobs = true;
  params.top_logprobs = 2;
  params.logit_bias = {{2, 100.0f}};

  const auto sampled =
      SampleFrom({std::log(0.2f), std::log(0.5f), std::log(0.1f), std::log(0.2f)}, params);

  EXPECT_EQ(sampled.token, 2);
  EXPECT_NEAR(sampled.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(sampled.top.size(), 2u);
  EXPECT_EQ(sampled.top[0].token, 1);
  EXPECT_NEAR(sampled.top[0].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(sampled.top[1].token, 0);  // 0.2 twice: the lower id
}

TEST(SamplerTest, SurvivesNanAndInfinity) {
  SamplingParams plain, top_p, min_p;
  top_p.top_p = 0.9f;
  min_p.min_p = 0.1f;
  for (const SamplingParams& params : {Greedy(), plain, top_p, min_p}) {
    EXPECT_EQ(SampleFrom({kNan, -kInf, 1.0f, kNan}, params).token, 2);
    EXPECT_EQ(SampleFrom({0.0f, kInf, 1.0f}, params).token, 1);
    EXPECT_EQ(SampleFrom({-kInf, kNan, -kInf}, params).token, 0);
  }
}

TEST(SamplerTest, ScoreGivesLogprobsInDoublePrecisionOverLargeVocabularies) {
  Sampler sampler;
  std::vector<float> logits(100000, 0.0f);
  logits[7] = 10.0f;

  const auto scored = sampler.Score(3, 1, logits);

  EXPECT_NEAR(scored.logprob, -std::log(99999.0 + std::exp(10.0)), 1e-6);
  ASSERT_EQ(scored.top.size(), 1u);
  EXPECT_EQ(scored.top[0].token, 7);
}

TEST(SamplerTest, TheSameSeedAndPositionGiveTheSameToken) {
  std::mt19937 random(1);
  std::vector<float> logits(1000);
  for (float& logit : logits) logit = static_cast<float>(random() % 100) / 25.0f;
  SamplingParams params;
  params.seed = 42;
  std::set<std::int32_t> tokens;

  for (int position = 0; position < 50; ++position) {
    const std::vector<std::int32_t> output(position, 5);
    const auto first = SampleFrom(logits, params, {}, output).token;
    EXPECT_EQ(SampleFrom(logits, params, {}, output).token, first);
    tokens.insert(first);
  }

  EXPECT_GT(tokens.size(), 30u);  // the position moves the draw
}

TEST(CheckFinishTest, StopsAtAStopTokenAfterMinTokens) {
  SamplingParams params;
  params.stop_token_ids = {2};
  params.max_tokens = 10;
  params.min_tokens = 2;
  const std::vector<std::int32_t> early = {2}, late = {5, 5, 2}, other = {5, 5, 5};

  EXPECT_EQ(CheckFinish(params, 3, early, 100), FinishReason::kNone);
  EXPECT_EQ(CheckFinish(params, 3, late, 100), FinishReason::kStop);
  EXPECT_EQ(CheckFinish(params, 3, other, 100), FinishReason::kNone);
}

TEST(CheckFinishTest, EndsForLengthAtMaxTokensAndAtTheContext) {
  SamplingParams params;
  params.max_tokens = 3;
  const std::vector<std::int32_t> two = {5, 5}, three = {5, 5, 5};

  EXPECT_EQ(CheckFinish(params, 3, two, 100), FinishReason::kNone);
  EXPECT_EQ(CheckFinish(params, 3, three, 100), FinishReason::kLength);
  EXPECT_EQ(CheckFinish(params, 98, two, 100), FinishReason::kLength);
}

}  // namespace
}  // namespace baton::engine
