#include "router/api/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/api/api_error.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}
ApiError ChatError(const std::string& fields) {
  return ApiError::FromStatus(ParseChatRequest(Chat(fields)).status());
}
ApiError CompletionError(const std::string& body) {
  return ApiError::FromStatus(ParseCompletionRequest(body).status());
}

TEST(RequestParserTest, ReadsEverySamplingField) {
  const auto request = ParseChatRequest(Chat(
      R"("model":"m","temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"presence_penalty":1,
         "frequency_penalty":-1.5,"repetition_penalty":1.1,"logit_bias":{"5":-100,"6":2.5},
         "seed":-3,"stop":["a","b"],"stop_token_ids":[1,2],"max_completion_tokens":7,"n":2,
         "min_tokens":3,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true},
         "logprobs":true,"top_logprobs":3,"skip_special_tokens":false,"return_token_ids":true,
         "priority":-4,"include_stop_str_in_output":true,"user":"u","unknown":{"x":[1]})"));

  ASSERT_TRUE(request.ok()) << request.status();
  const SamplingParams& sampling = request->sampling;
  EXPECT_EQ(request->model, "m");
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, 1.0f);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, -1.5f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_THAT(sampling.logit_bias, ElementsAre(std::pair(5, -100.0f), std::pair(6, 2.5f)));
  EXPECT_EQ(request->seed, -3);
  EXPECT_THAT(request->stop, ElementsAre("a", "b"));
  EXPECT_THAT(request->stop_token_ids, ElementsAre(1, 2));
  EXPECT_EQ(request->max_tokens, 7);
  EXPECT_EQ(request->n, 2);
  EXPECT_EQ(sampling.min_tokens, 3);
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
  EXPECT_TRUE(sampling.logprobs);
  EXPECT_EQ(sampling.top_logprobs, 3);
  EXPECT_FALSE(request->skip_special_tokens);
  EXPECT_TRUE(request->return_token_ids);
  EXPECT_EQ(request->priority, -4);
  EXPECT_TRUE(request->include_stop_str_in_output);
}

TEST(RequestParserTest, NullCountsAsAbsent) {
  const auto request = ParseChatRequest(
      Chat(R"("temperature":null,"stop":null,"n":null,"seed":null,"logit_bias":null,
              "stream_options":null,"tools":null,"max_tokens":null,"logprobs":null)"));

  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_FLOAT_EQ(request->sampling.temperature, 1.0f);
  EXPECT_EQ(request->n, 1);
  EXPECT_FALSE(request->max_tokens.has_value());
}

TEST(RequestParserTest, WrongTypesAndRangesNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":2.5)", "temperature"},
      {R"("temperature":true)", "temperature"},
      {R"("top_p":-0.1)", "top_p"},
      {R"("top_k":1.5)", "top_k"},
      {R"("top_k":-2)", "top_k"},
      {R"("min_p":7)", "min_p"},
      {R"("presence_penalty":-3)", "presence_penalty"},
      {R"("frequency_penalty":[])", "frequency_penalty"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("logit_bias":{"a":1})", "logit_bias"},
      {R"("logit_bias":{"5":101})", "logit_bias.5"},
      {R"("seed":1.5)", "seed"},
      {R"("seed":99999999999999999999)", "seed"},
      {R"("stop":[1])", "stop[0]"},
      {R"("stop":"")", "stop"},
      {R"("stop_token_ids":["x"])", "stop_token_ids[0]"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_completion_tokens":-1)", "max_completion_tokens"},
      {R"("max_tokens":4,"min_tokens":5)", "min_tokens"},
      {R"("n":0)", "n"},
      {R"("n":1000)", "n"},
      {R"("stream":"yes")", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("logprobs":5)", "logprobs"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("model":5)", "model"},
      {R"("tools":{})", "tools"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("chat_template_kwargs":{"a":1,"tools":[]})", "chat_template_kwargs.tools"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages"},
      {R"("chat_template_kwargs":{"chat_template":"x"})", "chat_template_kwargs.chat_template"},
      {R"("chat_template":5)", "chat_template"},
      {R"("chat_template":"{{ messages }}")", "chat_template"},
      {R"("tools":[5])", "tools[0]"},
      {R"("tool_choice":5)", "tool_choice"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("response_format":"json")", "response_format"},
      {R"("guided_json":{})", "guided_json"},
      {R"("functions":[])", "functions"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
      {R"("documents":{})", "documents"},
      {R"("documents":["d"])", "documents[0]"},
      {R"("reasoning_effort":5)", "reasoning_effort"},
      {R"("continue_final_message":"yes")", "continue_final_message"},
      {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message"},
      {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs"},
  };
  for (const auto& [fields, param] : cases) {
    const ApiError error = ChatError(fields);
    EXPECT_EQ(error.http_status, 400) << fields;
    EXPECT_EQ(error.param, param) << fields;
    EXPECT_EQ(error.type, "invalid_request_error") << fields;
    EXPECT_THAT(error.message, HasSubstr(param)) << fields;
  }
}

TEST(RequestParserTest, ChecksMessages) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":["hi"]})", "messages[0]"},
      {R"({"messages":[{"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":["a",{"type":"input_audio","input_audio":{}}]}]})",
       "messages[0].content[1].type"},
      {R"({"messages":[{"role":"assistant","tool_calls":{}}]})", "messages[0].tool_calls"},
      {R"({"messages":[{"role":"assistant","tool_calls":["f"]}]})", "messages[0].tool_calls[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "messages[0].content[0].text"},
  };
  for (const auto& [body, param] : cases) {
    EXPECT_EQ(ApiError::FromStatus(ParseChatRequest(body).status()).param, param) << body;
  }
}

TEST(RequestParserTest, NamesThePartThatIsNotText) {
  const ApiError error = ApiError::FromStatus(
      ParseChatRequest(
          R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})")
          .status());

  EXPECT_EQ(error.http_status, 400);
  EXPECT_THAT(error.message, HasSubstr("messages[0].content[0].type"));
  EXPECT_THAT(error.message, HasSubstr("'image_url'"));
}

TEST(RequestParserTest, KeepsMessagesAsTheyWereSent) {
  const std::string messages =
      R"([{"z": 1.0, "role": "assistant", "content": null, "a": {"y": 1, "x": 1e-07}, )"
      R"("tool_calls": [{"function": {"arguments": "{\"b\":1}"}}]}])";

  const auto request = ParseChatRequest("{\"messages\":" + messages + "}");

  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(text::jinja::DumpJson(request->chat.messages).value(), messages);
}

TEST(RequestParserTest, ReadsWhatTheTemplateIsGiven) {
  const auto request = ParseChatRequest(
      Chat(R"("tools":[{"type":"function"}],"tool_choice":"auto","documents":[{"text":"d"}],
              "add_generation_prompt":false,"continue_final_message":true,"chat_template":"rag",
              "reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":false,"n":1.0})"));

  ASSERT_TRUE(request.ok()) << request.status();
  const text::ChatTemplateInput& chat = request->chat;
  EXPECT_EQ(text::jinja::DumpJson(chat.tools).value(), R"([{"type": "function"}])");
  EXPECT_EQ(text::jinja::DumpJson(chat.documents).value(), R"([{"text": "d"}])");
  EXPECT_FALSE(chat.add_generation_prompt);
  EXPECT_TRUE(chat.continue_final_message);
  EXPECT_EQ(chat.template_name, "rag");
  ASSERT_EQ(chat.extra.size(), 3u);
  EXPECT_EQ(chat.extra.at("reasoning_effort").str(), "low");
  EXPECT_FALSE(chat.extra.at("enable_thinking").as_bool());
  EXPECT_TRUE(chat.extra.at("n").is_float());
}

TEST(RequestParserTest, AVariableOfTheTemplateGoesBeforeTheFieldOfItsName) {
  const auto request = ParseChatRequest(
      Chat(R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"high"})"));

  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->chat.extra.at("reasoning_effort").str(), "high");
}

TEST(RequestParserTest, HidesToolsThatMustNotBeCalled) {
  for (const char* fields : {R"("tools":[{"type":"function"}],"tool_choice":"none")",
                             R"("tools":[])", R"("tools":null)"}) {
    const auto request = ParseChatRequest(Chat(fields));

    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_TRUE(request->chat.tools.is_none()) << fields;
  }
}

TEST(RequestParserTest, BrokenJsonIsAClearError) {
  for (const char* body : {"", "{", "[]", "5", "{\"a\":}", "{} x"}) {
    const ApiError error = ApiError::FromStatus(ParseChatRequest(body).status());
    EXPECT_EQ(error.http_status, 400) << body;
    EXPECT_THAT(error.message, HasSubstr("request body")) << body;
  }
}

TEST(RequestParserTest, ReadsEveryFormOfPrompt) {
  const auto one = ParseCompletionRequest(R"({"prompt":"a"})");
  const auto texts = ParseCompletionRequest(R"({"prompt":["a","b"]})");
  const auto ids = ParseCompletionRequest(R"({"prompt":[1,2,3]})");
  const auto many_ids = ParseCompletionRequest(R"({"prompt":[[1],[2,3]]})");

  ASSERT_TRUE(one.ok() && texts.ok() && ids.ok() && many_ids.ok());
  EXPECT_EQ(one->prompts.at(0).text, "a");
  EXPECT_EQ(texts->prompts.at(1).text, "b");
  ASSERT_EQ(ids->prompts.size(), 1u);
  EXPECT_THAT(ids->prompts[0].tokens, ElementsAre(1, 2, 3));
  EXPECT_THAT(many_ids->prompts.at(1).tokens, ElementsAre(2, 3));
}

TEST(RequestParserTest, RefusesMixedAndMalformedPrompts) {
  EXPECT_EQ(CompletionError(R"({})").param, "prompt");
  EXPECT_EQ(CompletionError(R"({"prompt":[]})").param, "prompt");
  EXPECT_EQ(CompletionError(R"({"prompt":{}})").param, "prompt");
  EXPECT_EQ(CompletionError(R"({"prompt":["a",[1]]})").param, "prompt[1]");
  EXPECT_EQ(CompletionError(R"({"prompt":[1,"a"]})").param, "prompt[1]");
  EXPECT_EQ(CompletionError(R"({"prompt":[[1],[-1]]})").param, "prompt[1][0]");
  EXPECT_EQ(CompletionError(R"({"prompt":"a","suffix":"b"})").param, "suffix");
  EXPECT_EQ(CompletionError(R"({"prompt":"a","best_of":3})").param, "best_of");
  EXPECT_EQ(CompletionError(R"({"prompt":"a","guided_regex":"b"})").param, "guided_regex");
}

TEST(RequestParserTest, OnlyAnEchoMayAskForNoOutput) {
  EXPECT_EQ(CompletionError(R"({"prompt":"a","max_tokens":0})").param, "max_tokens");

  const auto request =
      ParseCompletionRequest(R"({"prompt":"a","max_tokens":0,"echo":true,"logprobs":2})");

  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->sampling.prompt_logprobs);
  EXPECT_EQ(request->sampling.num_prompt_logprobs, 2);
}

TEST(ApiErrorTest, SaysWhenToRetry) {
  const ApiError error = ApiError::FromStatus(
      WithRetryAfter(absl::ResourceExhaustedError("full \"now\""), absl::Seconds(7)));

  EXPECT_EQ(error.http_status, 429);
  EXPECT_EQ(error.retry_after, absl::Seconds(7));
  EXPECT_EQ(error.ToJson(),
            R"({"error":{"message":"full \"now\"","type":"rate_limit_error","param":null,)"
            R"("code":"rate_limit_exceeded"}})");
}

TEST(RequestParserTest, TakesAResponseFormatOfText) {
  EXPECT_TRUE(ParseChatRequest(R"({"messages":[{"role":"user","content":"a"}],
                                   "response_format":{"type":"text"},"guided_json":null})")
                  .ok());
}

}  // namespace
}  // namespace baton::router
