#include "router/api/request_parser.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/api/api_error.h"
#include "router/api/chat_messages.h"
#include "router/api/sampling_fields.h"

namespace baton::router {
namespace {

using text::jinja::Dict;
using text::jinja::List;
using text::jinja::Value;

constexpr std::int32_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

absl::StatusOr<Value> ParseBody(std::string_view body) {
  absl::StatusOr<Value> value = text::jinja::ParseJson(body);
  if (!value.ok()) {
    return FieldError(
        "", "invalid_json",
        absl::StrCat("the request body is not valid JSON: ", value.status().message()));
  }
  if (!value->is_dict()) {
    return FieldError("", "invalid_type", "the request body must be a JSON object");
  }
  return value;
}

bool ReadTokens(JsonFields& fields, const std::string& name, const List& list,
                std::vector<std::int32_t>& tokens) {
  tokens.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::optional<std::int64_t> id = AsJsonInteger(list[i]);
    if (!id.has_value()) {
      return fields.FailType(absl::StrCat(name, "[", i, "]"), "a token id", list[i]);
    }
    if (*id < 0 || *id > kMaxInt32) {
      return fields.Fail(absl::StrCat(name, "[", i, "]"), "invalid_value",
                         absl::StrCat("not a token id: ", *id));
    }
    tokens.push_back(static_cast<std::int32_t>(*id));
  }
  return true;
}

// A string, an array of strings, an array of token ids, or an array of such arrays.
void ReadPrompts(JsonFields& fields, std::vector<PromptInput>& prompts) {
  const Value* prompt = fields.Find("prompt");
  if (prompt == nullptr) {
    fields.Fail("prompt", "missing_required_parameter", "required");
    return;
  }
  if (prompt->is_string()) {
    prompts.push_back({prompt->str(), {}, false});
    return;
  }
  if (!prompt->is_list()) {
    fields.FailType("prompt", "a string or an array", *prompt);
    return;
  }
  const List& list = prompt->items();
  if (list.empty()) {
    fields.Fail("prompt", "invalid_value", "must not be empty");
    return;
  }
  if (!list[0].is_string() && !list[0].is_list()) {
    PromptInput input{"", {}, true};
    if (ReadTokens(fields, "prompt", list, input.tokens)) prompts.push_back(std::move(input));
    return;
  }
  if (list.size() > kMaxPrompts) {
    fields.Fail("prompt", "invalid_value", absl::StrCat("at most ", kMaxPrompts, " prompts"));
    return;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string name = absl::StrCat("prompt[", i, "]");
    PromptInput input;
    if (list[i].is_string() && list[0].is_string()) {
      input.text = list[i].str();
    } else if (list[i].is_list() && list[0].is_list()) {
      input.is_tokens = true;
      if (!ReadTokens(fields, name, list[i].items(), input.tokens)) return;
    } else {
      fields.FailType(name, list[0].is_string() ? "a string" : "an array", list[i]);
      return;
    }
    prompts.push_back(std::move(input));
  }
}

void ReadChatLogprobs(JsonFields& fields, SamplingParams& sampling) {
  fields.Bool("logprobs", sampling.logprobs);
  if (fields.Int32("top_logprobs", 0, kMaxTopLogprobs, sampling.top_logprobs) &&
      sampling.top_logprobs > 0 && !sampling.logprobs) {
    fields.Fail("top_logprobs", "invalid_value", "only allowed when logprobs is true");
  }
}

// The output follows no grammar, so a request for one could not be kept.
void RefuseGrammars(JsonFields& fields) {
  const Dict* format = fields.Object("response_format");
  const Value* type = format == nullptr ? nullptr : format->Find("type");
  if (format != nullptr && (type == nullptr || !type->is_string() || type->str() != "text")) {
    fields.Fail("response_format", "unsupported_parameter",
                "only {\"type\": \"text\"} is supported");
  }
  for (const char* name : {"structured_outputs", "guided_json", "guided_regex", "guided_choice",
                           "guided_grammar", "grammar", "json_schema"}) {
    if (fields.Find(name) != nullptr) {
      fields.Fail(name, "unsupported_parameter", "the output cannot be constrained");
    }
  }
}

// Fields that would change the answer's meaning and are not supported are refused, not ignored.
void RefuseUnsupported(JsonFields& fields, const GenerationRequest& request) {
  std::string suffix;
  if (fields.String("suffix", suffix) && !suffix.empty()) {
    fields.Fail("suffix", "unsupported_parameter", "not supported");
  }
  std::int32_t best_of = 0;
  if (fields.Int32("best_of", 0, kMaxInt32, best_of) && best_of > request.n) {
    fields.Fail("best_of", "unsupported_parameter", "more than n is not supported");
  }
  RefuseGrammars(fields);
}

}  // namespace

absl::StatusOr<GenerationRequest> ParseChatRequest(std::string_view body) {
  BATON_ASSIGN_OR_RETURN(const Value value, ParseBody(body));
  JsonFields fields(value.dict());
  GenerationRequest request;
  request.kind = GenerationRequest::Kind::kChat;
  fields.String("model", request.model);
  ReadChatInput(fields, request.chat);
  ReadSamplingFields(fields, request);
  ReadChatLogprobs(fields, request.sampling);
  bool add_special_tokens = false;
  if (fields.Bool("add_special_tokens", add_special_tokens)) {
    request.add_special_tokens = add_special_tokens;
  }
  RefuseGrammars(fields);
  if (fields.Find("functions") != nullptr) {
    fields.Fail("functions", "unsupported_parameter", "superseded: use tools");
  }
  BATON_RETURN_IF_ERROR(fields.status());
  return request;
}

absl::StatusOr<GenerationRequest> ParseCompletionRequest(std::string_view body) {
  BATON_ASSIGN_OR_RETURN(const Value value, ParseBody(body));
  JsonFields fields(value.dict());
  GenerationRequest request;
  request.kind = GenerationRequest::Kind::kCompletion;
  fields.String("model", request.model);
  ReadPrompts(fields, request.prompts);
  fields.Bool("echo", request.echo);
  ReadSamplingFields(fields, request);
  SamplingParams& sampling = request.sampling;
  if (fields.Int32("logprobs", 0, kMaxTopLogprobs, sampling.top_logprobs)) {
    sampling.logprobs = true;
  }
  if (request.echo && sampling.logprobs) {  // the prompt's too
    sampling.prompt_logprobs = true;
    sampling.num_prompt_logprobs = std::max(sampling.num_prompt_logprobs, sampling.top_logprobs);
  }
  bool add_special_tokens = true;
  if (fields.Bool("add_special_tokens", add_special_tokens)) {
    request.add_special_tokens = add_special_tokens;
  }
  RefuseUnsupported(fields, request);
  BATON_RETURN_IF_ERROR(fields.status());
  return request;
}

absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(std::string_view body) {
  BATON_ASSIGN_OR_RETURN(const Value value, ParseBody(body));
  JsonFields fields(value.dict());
  TokenizeRequest request;
  fields.String("model", request.model);
  request.is_chat = fields.Find("messages") != nullptr;
  if (request.is_chat) {
    ReadChatInput(fields, request.chat);
  } else if (!fields.String("prompt", request.prompt)) {
    fields.Fail("prompt", "missing_required_parameter", "a prompt or messages are required");
  }
  bool add_special_tokens = true;
  if (fields.Bool("add_special_tokens", add_special_tokens)) {
    request.add_special_tokens = add_special_tokens;
  }
  fields.Bool("return_token_strs", request.return_token_strs);
  BATON_RETURN_IF_ERROR(fields.status());
  return request;
}

absl::StatusOr<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body) {
  BATON_ASSIGN_OR_RETURN(const Value value, ParseBody(body));
  JsonFields fields(value.dict());
  DetokenizeRequest request;
  fields.String("model", request.model);
  if (!fields.Int32List("tokens", 0, kMaxInt32, request.tokens)) {
    fields.Fail("tokens", "missing_required_parameter", "required");
  }
  BATON_RETURN_IF_ERROR(fields.status());
  return request;
}

}  // namespace baton::router
