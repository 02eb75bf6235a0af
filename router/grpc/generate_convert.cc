#include "router/grpc/generate_convert.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/api/api_error.h"
#include "router/api/chat_messages.h"
#include "router/api/json_fields.h"
#include "router/api/request_parser.h"
#include "router/api/sampling_fields.h"

namespace baton::router {
namespace {

using text::jinja::Dict;
using text::jinja::List;
using text::jinja::Value;

// The fields that are present, under the names and in the types of the JSON interface.
Dict SamplingAsJson(const v1::GenerateRequest& proto) {
  const v1::Sampling& sampling = proto.sampling();
  Dict json;
  const auto set_float = [&](const char* name, bool present, float value) {
    if (present) json.Set(name, Value::Float(value));
  };
  const auto set_int = [&](const char* name, bool present, std::int64_t value) {
    if (present) json.Set(name, Value::Int(value));
  };
  set_float("temperature", sampling.has_temperature(), sampling.temperature());
  set_float("top_p", sampling.has_top_p(), sampling.top_p());
  set_int("top_k", sampling.has_top_k(), sampling.top_k());
  set_float("min_p", sampling.has_min_p(), sampling.min_p());
  set_float("repetition_penalty", sampling.has_repetition_penalty(), sampling.repetition_penalty());
  set_float("presence_penalty", sampling.has_presence_penalty(), sampling.presence_penalty());
  set_float("frequency_penalty", sampling.has_frequency_penalty(), sampling.frequency_penalty());
  set_int("seed", sampling.has_seed(), sampling.seed());
  set_int("max_tokens", sampling.has_max_tokens(), sampling.max_tokens());
  set_int("min_tokens", sampling.min_tokens() != 0, sampling.min_tokens());
  set_int("n", proto.n() != 0, proto.n());
  set_int("prompt_logprobs", proto.has_prompt_logprobs(), proto.prompt_logprobs());
  set_int("priority", proto.priority() != 0, proto.priority());
  json.Set("ignore_eos", Value::Bool(sampling.ignore_eos()));
  json.Set("include_stop_str_in_output", Value::Bool(sampling.include_stop_str_in_output()));
  if (proto.has_skip_special_tokens()) {
    json.Set("skip_special_tokens", Value::Bool(proto.skip_special_tokens()));
  }
  List stop, stop_token_ids;
  for (const std::string& text : sampling.stop()) stop.push_back(Value::String(text));
  for (const std::int32_t id : sampling.stop_token_ids()) stop_token_ids.push_back(Value::Int(id));
  if (!stop.empty()) json.Set("stop", Value::MakeList(std::move(stop)));
  if (!stop_token_ids.empty()) {
    json.Set("stop_token_ids", Value::MakeList(std::move(stop_token_ids)));
  }
  if (!sampling.logit_bias().empty()) {
    Dict bias;
    for (const auto& [token, amount] : sampling.logit_bias()) {
      bias.Set(absl::StrCat(token), Value::Float(amount));
    }
    json.Set("logit_bias", Value::MakeDict(std::move(bias)));
  }
  return json;
}

absl::Status ReadChat(const v1::ChatPrompt& proto, text::ChatTemplateInput& chat) {
  List messages;
  for (const v1::ChatMessage& message : proto.messages()) {
    Dict dict;
    dict.Set("role", Value::String(message.role()));
    dict.Set("content", Value::String(message.content()));
    messages.push_back(Value::MakeDict(std::move(dict)));
  }
  Dict json;
  json.Set("messages", Value::MakeList(std::move(messages)));
  const auto set_json = [&](const char* name, const char* field, const std::string& text) {
    if (text.empty()) return absl::OkStatus();
    const absl::StatusOr<Value> value = text::jinja::ParseJson(text);
    if (!value.ok()) {
      return FieldError(field, "invalid_json",
                        absl::StrCat("invalid '", field, "': ", value.status().message()));
    }
    json.Set(name, *value);
    return absl::OkStatus();
  };
  BATON_RETURN_IF_ERROR(set_json("tools", "chat.tools_json", proto.tools_json()));
  BATON_RETURN_IF_ERROR(
      set_json("chat_template_kwargs", "chat.template_kwargs_json", proto.template_kwargs_json()));
  if (proto.has_add_generation_prompt()) {
    json.Set("add_generation_prompt", Value::Bool(proto.add_generation_prompt()));
  }
  JsonFields fields(json);
  ReadChatInput(fields, chat);
  return fields.status();
}

absl::Status ReadPrompt(const v1::GenerateRequest& proto, GenerationRequest& request) {
  request.kind = GenerationRequest::Kind::kCompletion;
  switch (proto.prompt_case()) {
    case v1::GenerateRequest::kText:
      request.prompts.push_back({proto.text(), {}, false});
      return absl::OkStatus();
    case v1::GenerateRequest::kTokenIds:
      request.prompts.push_back(
          {"", {proto.token_ids().ids().begin(), proto.token_ids().ids().end()}, true});
      return absl::OkStatus();
    case v1::GenerateRequest::kChat:
      request.kind = GenerationRequest::Kind::kChat;
      return ReadChat(proto.chat(), request.chat);
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return FieldError("prompt", "missing_required_parameter",
                    "one of text, token_ids and chat is required");
}

void FillLogprobs(const SampledToken& token, v1::TokenLogprobs& out) {
  out.set_token_id(token.token);
  out.set_logprob(token.logprob);
  for (const TokenLogprob& top : token.top) {
    v1::TopLogprob& entry = *out.add_top();
    entry.set_token_id(top.token);
    entry.set_logprob(top.logprob);
  }
}

}  // namespace

absl::StatusOr<GenerationRequest> FromProto(const v1::GenerateRequest& proto) {
  GenerationRequest request;
  BATON_RETURN_IF_ERROR(ReadPrompt(proto, request));
  request.model = proto.model();
  request.user = proto.user();
  request.return_token_ids = true;
  if (proto.has_add_special_tokens()) request.add_special_tokens = proto.add_special_tokens();
  Dict json = SamplingAsJson(proto);
  if (proto.has_logprobs()) json.Set("logprobs", Value::Int(proto.logprobs()));
  JsonFields fields(json);
  ReadSamplingFields(fields, request);
  if (fields.Int32("logprobs", 0, kMaxTopLogprobs, request.sampling.top_logprobs)) {
    request.sampling.logprobs = true;
  }
  BATON_RETURN_IF_ERROR(fields.status());
  return request;
}

void FillResponse(const ChoiceDelta& delta, v1::GenerateResponse& out) {
  out.set_index(delta.index);
  out.set_text(delta.text);
  out.mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
  for (const SampledToken& token : delta.logprobs) FillLogprobs(token, *out.add_logprobs());
  if (delta.index == 0) {
    for (const SampledToken& token : delta.prompt_logprobs) {
      FillLogprobs(token, *out.add_prompt_logprobs());
    }
  }
  if (delta.finish == FinishReason::kStop)
    out.set_finish_reason(v1::GenerateResponse::FINISH_REASON_STOP);
  if (delta.finish == FinishReason::kLength)
    out.set_finish_reason(v1::GenerateResponse::FINISH_REASON_LENGTH);
  if (delta.stop_string.has_value()) {
    out.set_stop_string(*delta.stop_string);
  } else if (delta.stop_token.has_value()) {
    out.set_stop_token_id(*delta.stop_token);
  }
}

}  // namespace baton::router
