#include "router/generation/choice_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/served_model.h"
#include "tests/support/test_paths.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ChoiceTextTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto model = ServedModel::Load({baton::testing::ModelsDir() + "/tiny/target", {}, 0, ""});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  static std::vector<SampledToken> Tokens(const std::string& text) {
    std::vector<SampledToken> tokens;
    for (const std::int32_t id : model_->tokenizer->Encode(text)) tokens.push_back({id, -1.0f, {}});
    return tokens;
  }
  // Gives one token at a time and returns all text, and what the last delta said.
  std::string Run(const std::vector<SampledToken>& tokens, FinishReason finish) {
    ChoiceText choice(*model_->tokenizer, answer_, 0);
    std::string text;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool last = i + 1 == tokens.size();
      ChoiceDelta delta =
          choice.Append({std::span(&tokens[i], 1), last ? finish : FinishReason::kNone});
      text += delta.text;
      num_logprobs_ += static_cast<int>(delta.logprobs.size());
      num_ids_ += static_cast<int>(delta.token_ids.size());
      last_ = std::move(delta);
      if (last_.finished()) break;
    }
    num_tokens_ = choice.num_tokens();
    return text;
  }

  static std::unique_ptr<const ServedModel> model_;
  AnswerOptions answer_;
  ChoiceDelta last_;
  int num_logprobs_ = 0;
  int num_ids_ = 0;
  int num_tokens_ = 0;
};
std::unique_ptr<const ServedModel> ChoiceTextTest::model_;

TEST_F(ChoiceTextTest, TextOfAllDeltasIsTheText) {
  const std::string text = "Once upon a time, na\xC3\xAFve \xF0\x9F\x98\x80 friends.";

  EXPECT_EQ(Run(Tokens(text), FinishReason::kLength), text);
  EXPECT_EQ(last_.finish, FinishReason::kLength);
}

TEST_F(ChoiceTextTest, NothingOfAStopStringIsShown) {
  answer_.stop = {"upon a"};
  answer_.logprobs = answer_.return_token_ids = true;

  EXPECT_EQ(Run(Tokens("Once upon a time there was"), FinishReason::kNone), "Once ");

  EXPECT_EQ(last_.finish, FinishReason::kStop);
  EXPECT_EQ(last_.stop_string, "upon a");
  EXPECT_EQ(num_ids_, num_tokens_);
  EXPECT_LT(num_logprobs_, num_tokens_);
}

TEST_F(ChoiceTextTest, TheStopStringIsShownWhenAskedFor) {
  answer_.stop = {"upon a"};
  answer_.include_stop_str_in_output = true;

  EXPECT_EQ(Run(Tokens("Once upon a time"), FinishReason::kNone), "Once upon a");
}

TEST_F(ChoiceTextTest, WhatLooksLikeAStopStringIsShownAtTheEnd) {
  answer_.stop = {"time machine"};

  EXPECT_EQ(Run(Tokens("Once upon a time"), FinishReason::kLength), "Once upon a time");
  EXPECT_EQ(last_.stop_string, std::nullopt);
}

TEST_F(ChoiceTextTest, StopStringsWaitForMinTokens) {
  const auto tokens = Tokens("Once upon a time upon a hill");
  answer_.stop = {"upon"};
  answer_.min_tokens = static_cast<int>(Tokens("Once upon a time").size());

  EXPECT_EQ(Run(tokens, FinishReason::kLength), "Once upon a time ");
}

TEST_F(ChoiceTextTest, AStopTokensTextIsHiddenAndItsIdKept) {
  auto tokens = Tokens("Once upon");
  const std::int32_t stop = tokens.back().token;
  answer_.stop_token_ids = {stop};
  answer_.return_token_ids = true;

  EXPECT_EQ(Run(tokens, FinishReason::kStop), "Once");

  EXPECT_EQ(last_.stop_token, stop);
  EXPECT_EQ(num_ids_, static_cast<int>(tokens.size()));
}

TEST_F(ChoiceTextTest, LogprobsComeWithTheirText) {
  answer_.logprobs = true;
  const auto tokens = Tokens("Once upon a time");

  Run(tokens, FinishReason::kLength);

  EXPECT_EQ(num_logprobs_, static_cast<int>(tokens.size()));
}

TEST_F(ChoiceTextTest, TokensBehindAStopStringDoNotCount) {
  answer_.stop = {"Once"};
  const auto tokens = Tokens("Once upon a time");
  ChoiceText choice(*model_->tokenizer, answer_, 0);

  const ChoiceDelta delta = choice.Append({tokens, FinishReason::kNone});

  EXPECT_TRUE(delta.finished());
  EXPECT_THAT(delta.text, IsEmpty());
  EXPECT_EQ(choice.num_tokens(), static_cast<int>(Tokens("Once").size()));
}

// Vocabularies of SentencePiece write a space before each word, the first of a text included, where
// decoding takes it away. What goes on from a prompt keeps it.
TEST(ChoiceTextFrontTest, ASpaceAtTheFrontStaysWhenAPromptGoesOn) {
  checkpoint::TextAssets assets;
  assets.tokenizer_json = R"({
      "normalizer": {"type": "Prepend", "prepend": "_"},
      "decoder": {"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "Fuse"},
          {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "vocab": {"_": 0, "a": 1, "_a": 2}, "merges": ["_ a"]}})";
  const auto tokenizer = text::Tokenizer::Create(assets);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::vector<SampledToken> tokens = {{2, -1.0f, {}}, {2, -1.0f, {}}};
  AnswerOptions answer;
  AnswerOptions going_on;
  going_on.continues_prompt = true;

  EXPECT_EQ(ChoiceText(**tokenizer, answer, 0).Append({tokens, FinishReason::kLength}).text, "a a");
  EXPECT_EQ(ChoiceText(**tokenizer, going_on, 0).Append({tokens, FinishReason::kLength}).text,
            " a a");
}

TEST_F(ChoiceTextTest, MergedDeltasAreOne) {
  ChoiceDelta first{.index = 0, .first = true, .text = "a", .token_ids = {1}};
  ChoiceDelta second{.index = 0, .text = "b", .token_ids = {2}, .finish = FinishReason::kStop};

  first.Merge(second);

  EXPECT_EQ(first.text, "ab");
  EXPECT_THAT(first.token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(first.first && first.finished());
}

}  // namespace
}  // namespace baton::router
