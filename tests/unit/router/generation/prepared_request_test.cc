#include "router/generation/prepared_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/api/api_error.h"
#include "router/api/request_parser.h"
#include "tests/support/fake_clock.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_paths.h"

namespace baton::router {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class PreparedRequestTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto model =
        ServedModel::Load({baton::testing::ModelsDir() + "/tiny/target", {"tiny"}, 64, ""});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  absl::StatusOr<PreparedRequest> Completion(const std::string& body) {
    return Prepare(*ParseCompletionRequest(body), *model_, {}, clock_);
  }
  absl::StatusOr<PreparedRequest> Chat(const std::string& body) {
    return Prepare(*ParseChatRequest(body), *model_, {}, clock_);
  }

  static std::unique_ptr<const ServedModel> model_;
  FakeClock clock_;
};
std::unique_ptr<const ServedModel> PreparedRequestTest::model_;

TEST_F(PreparedRequestTest, AnswersUnderTheNameAskedFor) {
  EXPECT_EQ(Completion(R"({"prompt":"a","model":"tiny"})")->model, "tiny");
  EXPECT_EQ(Completion(R"({"prompt":"a"})")->model, "tiny");

  const ApiError error =
      ApiError::FromStatus(Completion(R"({"prompt":"a","model":"gpt-4"})").status());

  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error.code, "model_not_found");
}

TEST_F(PreparedRequestTest, OnlyAChatsAnswerIsATextOfItsOwn) {
  EXPECT_TRUE(Completion(R"({"prompt":"a"})")->answer.continues_prompt);
  EXPECT_FALSE(Chat(R"({"messages":[{"role":"user","content":"a"}]})")->answer.continues_prompt);
}

TEST_F(PreparedRequestTest, ATooLongPromptIsRefusedWithBothLengths) {
  std::string ids = "[1";
  for (int i = 0; i < 99; ++i) ids += ",1";

  const ApiError error = ApiError::FromStatus(Completion("{\"prompt\":" + ids + "]}").status());

  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_THAT(error.message, HasSubstr("64 tokens"));
  EXPECT_THAT(error.message, HasSubstr("100 tokens"));
}

TEST_F(PreparedRequestTest, MegabytesOfTextAreRefusedWithoutTokenizing) {
  const ApiError error = ApiError::FromStatus(
      Completion("{\"prompt\":\"" + std::string(4 << 20, 'x') + "\"}").status());

  EXPECT_EQ(error.code, "context_length_exceeded");
}

TEST_F(PreparedRequestTest, LimitsOutputToWhatTheContextLeaves) {
  EXPECT_EQ(Completion(R"({"prompt":[1,2]})")->max_tokens.at(0), 16);
  const auto chat = Chat(R"({"messages":[{"role":"user","content":"hi"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->max_tokens.at(0), 64 - static_cast<int>(chat->prompts.at(0).tokens.size()));
  EXPECT_EQ(Completion(R"({"prompt":[1,2],"max_tokens":62})")->max_tokens.at(0), 62);

  const ApiError error =
      ApiError::FromStatus(Completion(R"({"prompt":[1,2],"max_tokens":63})").status());

  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.param, "max_tokens");
}

TEST_F(PreparedRequestTest, ChoicesOfASeededRequestHaveTheirOwnSeeds) {
  const auto request = Completion(R"({"prompt":["a","b"],"n":2,"seed":10})");

  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->num_choices(), 4);
  EXPECT_EQ(request->SamplingOf(0).seed, 10u);
  EXPECT_EQ(request->SamplingOf(1).seed, 11u);
  EXPECT_EQ(request->SamplingOf(2).seed, 10u);
}

TEST_F(PreparedRequestTest, StopsAtTheModelsEndUnlessToldOtherwise) {
  ASSERT_FALSE(model_->eos_ids.empty());
  const auto usual = Completion(R"({"prompt":"a","stop_token_ids":[7]})");
  EXPECT_THAT(usual->sampling.stop_token_ids, Contains(model_->eos_ids[0]));
  EXPECT_THAT(usual->sampling.stop_token_ids, Contains(7));

  const auto endless = Completion(R"({"prompt":"a","ignore_eos":true})");

  EXPECT_TRUE(endless->sampling.stop_token_ids.empty());
}

TEST_F(PreparedRequestTest, RefusesTokenIdsBeyondTheVocabulary) {
  for (const char* body :
       {R"({"prompt":[1,99999999]})", R"({"prompt":"a","stop_token_ids":[99999999]})",
        R"({"prompt":"a","logit_bias":{"99999999":1}})"}) {
    EXPECT_EQ(ApiError::FromStatus(Completion(body).status()).http_status, 400) << body;
  }
}

TEST_F(PreparedRequestTest, ContentPartsAreJoinedForTemplatesThatTakeStrings) {
  const auto parts = Chat(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  const auto whole = Chat(R"({"messages":[{"role":"user","content":"a\nb"}]})");

  ASSERT_TRUE(parts.ok() && whole.ok()) << parts.status() << whole.status();
  EXPECT_EQ(parts->prompts[0].tokens, whole->prompts[0].tokens);
}

// The tiny model with a template of the test's own.
class TemplateFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<const ServedModel>> Load(const std::string& source) {
    return LoadPath(directory_.Write("chat.jinja", source));
  }
  absl::StatusOr<std::unique_ptr<const ServedModel>> LoadPath(const std::string& path) {
    return ServedModel::Load({baton::testing::ModelsDir() + "/tiny/target", {"tiny"}, 0, path});
  }
  // The prompt of a chat request, or the error.
  std::string Prompt(const std::string& source, const std::string& body) {
    const auto model = Load(source);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return "";
    const auto prepared = Prepare(*ParseChatRequest(body), **model, {}, clock_);
    if (!prepared.ok()) return ApiError::FromStatus(prepared.status()).message;
    return (*model)->tokenizer->Decode(prepared->prompts.at(0).tokens, false);
  }

  baton::testing::TempDirectory directory_;
  FakeClock clock_;
};

TEST_F(TemplateFileTest, ReplacesTheModelsOwn) {
  EXPECT_EQ(Prompt("{{ messages[0].content | upper }}{{ tools | tojson }}{{ thinking }}",
                   R"({"messages":[{"role":"user","content":"hi"}],"tools":[{"b":1.0,"a":1}],
                       "chat_template_kwargs":{"thinking":true}})"),
            R"(HI[{"b": 1.0, "a": 1}]True)");
}

TEST_F(TemplateFileTest, MessagesAreFittedToIt) {
  EXPECT_EQ(Prompt("{% for m in messages %}{{ m.role }}:{{ m.content + ';' }}"
                   "{% for c in m.tool_calls %}{{ c.function.arguments.x }}{% endfor %}"
                   "{% endfor %}",
                   R"({"messages":[{"role":"developer","content":["a","b"]},
                       {"role":"assistant","content":null,
                        "tool_calls":[{"function":{"name":"f","arguments":"{\"x\":5}"}}]}]})"),
            "system:a\nb;assistant:;5");
}

TEST_F(TemplateFileTest, ContinuesTheLastMessage) {
  EXPECT_EQ(
      Prompt("{% for m in messages %}{{ m.content }}<|end|>{% endfor %}",
             R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b "}],
                       "continue_final_message":true})"),
      "a<|end|>b ");
}

TEST_F(TemplateFileTest, ItsRefusalIsTheClients) {
  EXPECT_EQ(Prompt("{{ raise_exception('Only one message, please!') }}",
                   R"({"messages":[{"role":"user","content":"a"}]})"),
            "Only one message, please!");
}

// A client that is told to come back later would never end.
TEST_F(TemplateFileTest, WhatIsTooMuchForTheTemplateIsNotToBeTriedAgain) {
  const auto model = Load("{{ messages[0].content * 1000000000 }}");
  ASSERT_TRUE(model.ok()) << model.status();

  const auto prepared = Prepare(
      *ParseChatRequest(R"({"messages":[{"role":"user","content":"a"}]})"), **model, {}, clock_);

  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kInvalidArgument) << prepared.status();
  EXPECT_EQ(ApiError::FromStatus(prepared.status()).param, "messages");
}

TEST_F(TemplateFileTest, ATemplateThatTheModelLacksIsNamed) {
  EXPECT_THAT(Prompt("x", R"({"messages":[{"role":"user","content":"a"}],"chat_template":"rag"})"),
              HasSubstr("'rag'; it has: default"));
}

TEST_F(TemplateFileTest, AMistakeIsFoundAtStartWithItsPlace) {
  for (const auto& [source, place] :
       {std::pair("a\n{{ x | nope }}", "line 2, column 8: "),
        std::pair("x{% endif %}", "line 1, column 5: "), std::pair("\xff", "not UTF-8")}) {
    const auto model = Load(source);

    ASSERT_FALSE(model.ok()) << source;
    EXPECT_THAT(model.status().message(), HasSubstr("chat.jinja: "));
    EXPECT_THAT(model.status().message(), HasSubstr(place));
  }
}

TEST_F(TemplateFileTest, OnlyAFileWillDo) {
  EXPECT_THAT(LoadPath(directory_.path() + "/none").status().message(), HasSubstr("/none"));
  EXPECT_THAT(LoadPath(directory_.path()).status().message(), HasSubstr(directory_.path()));
  EXPECT_FALSE(LoadPath("/dev/zero").ok());
}

TEST_F(TemplateFileTest, TheMarkAfterAnAnswerEndsTheOutput) {
  const auto own = LoadPath("");
  const auto other = Load("{% for m in messages %}{{ m.content }}<|system|>{% endfor %}");
  ASSERT_TRUE(own.ok() && other.ok()) << own.status() << other.status();
  const std::int32_t mark = *(*own)->tokenizer->TokenId("<|system|>");

  EXPECT_THAT((*own)->eos_ids, Not(Contains(mark)));
  EXPECT_THAT((*other)->eos_ids, Contains(mark));
  EXPECT_THAT((*other)->eos_ids, IsSupersetOf((*own)->eos_ids));
}

TEST(ServedModelTest, RefusesAContextBeyondTheModels) {
  const auto model =
      ServedModel::Load({baton::testing::ModelsDir() + "/tiny/target", {}, 1 << 24, ""});

  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ServedModelTest, IsNamedAfterItsDirectoryAndAnswersToItsPath) {
  const std::string path = baton::testing::ModelsDir() + "/tiny/target";
  const auto model = ServedModel::Load({path, {}, 0, ""});

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->names.at(0), "target");
  EXPECT_TRUE((*model)->Serves(path));
  EXPECT_FALSE((*model)->Serves("other"));
}

}  // namespace
}  // namespace baton::router
