#include "router/generation/prepared_request.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "router/api/api_error.h"

namespace baton::router {
namespace {

// One token of text is at least one byte, so text of more bytes per token than any vocabulary has
// is too long without looking; this spares the tokenizer megabytes of nonsense.
constexpr std::size_t kMaxBytesPerToken = 256;

absl::Status TooLong(std::size_t num_prompt_tokens, const ServedModel& model,
                     std::string_view param, bool at_least) {
  return FieldError(
      param, "context_length_exceeded",
      absl::StrFormat("This model's maximum context length is %d tokens. However, your prompt has "
                      "%s%d tokens. Please reduce the length of the prompt.",
                      model.max_context, at_least ? "at least " : "", num_prompt_tokens));
}

absl::StatusOr<std::vector<std::int32_t>> EncodeText(const std::string& text,
                                                     bool add_special_tokens,
                                                     std::string_view param,
                                                     const ServedModel& model) {
  const auto limit = static_cast<std::size_t>(model.max_context);
  if (text.size() / kMaxBytesPerToken > limit) {
    return TooLong(text.size() / kMaxBytesPerToken, model, param, /*at_least=*/true);
  }
  return model.tokenizer->Encode(text, {.add_special_tokens = add_special_tokens});
}

absl::StatusOr<std::vector<PreparedPrompt>> EncodePrompts(GenerationRequest& request,
                                                          const ServedModel& model,
                                                          const Clock& clock) {
  std::vector<PreparedPrompt> prompts;
  if (request.kind == GenerationRequest::Kind::kChat) {
    BATON_ASSIGN_OR_RETURN(
        auto tokens,
        EncodeChat(request.chat, request.add_special_tokens.value_or(false), model, clock));
    prompts.push_back({std::move(tokens), ""});
    return prompts;
  }
  for (PromptInput& input : request.prompts) {
    PreparedPrompt prompt;
    if (input.is_tokens) {
      prompt.tokens = std::move(input.tokens);
      BATON_RETURN_IF_ERROR(CheckTokens(prompt.tokens, "prompt", model));
      if (request.echo) {
        prompt.text = model.tokenizer->Decode(prompt.tokens, request.skip_special_tokens);
      }
    } else {
      BATON_ASSIGN_OR_RETURN(
          prompt.tokens,
          EncodeText(input.text, request.add_special_tokens.value_or(true), "prompt", model));
      prompt.text = std::move(input.text);
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// The model's own sampling defaults, where the request says nothing.
void ApplyDefaults(const ServedModel& model, const std::vector<std::string>& explicit_fields,
                   SamplingParams& sampling) {
  for (const auto& [name, value] : model.generation_defaults) {
    if (std::find(explicit_fields.begin(), explicit_fields.end(), name) != explicit_fields.end()) {
      continue;
    }
    const auto number = static_cast<float>(value);
    if (name == "temperature" && number >= 0) sampling.temperature = number;
    if (name == "top_p" && number > 0 && number <= 1) sampling.top_p = number;
    if (name == "top_k" && number >= 0) sampling.top_k = static_cast<std::int32_t>(value);
    if (name == "min_p" && number >= 0 && number <= 1) sampling.min_p = number;
    if (name == "repetition_penalty" && number > 0) sampling.repetition_penalty = number;
  }
}

// Decides how many tokens each prompt may be followed by.
absl::Status ResolveLengths(const GenerationRequest& request, const ServedModel& model,
                            const PrepareOptions& options, PreparedRequest& prepared) {
  const bool is_chat = request.kind == GenerationRequest::Kind::kChat;
  const std::string_view param = is_chat ? "messages" : "prompt";
  for (const PreparedPrompt& prompt : prepared.prompts) {
    const auto num_tokens = static_cast<std::int32_t>(prompt.tokens.size());
    if (num_tokens == 0) return FieldError(param, "invalid_value", "the prompt has no tokens");
    const std::int32_t room = model.max_context - num_tokens;
    if (room < 1) return TooLong(prompt.tokens.size(), model, param, /*at_least=*/false);
    const std::int32_t by_default =
        is_chat ? options.default_chat_tokens : options.default_completion_tokens;
    std::int32_t max_tokens = by_default > 0 ? std::min(by_default, room) : room;
    if (request.max_tokens.has_value()) max_tokens = std::max(1, *request.max_tokens);
    if (max_tokens > room) {
      return FieldError(
          request.max_tokens_field, "context_length_exceeded",
          absl::StrFormat("%s is too large: %d. This model's maximum context length is %d tokens "
                          "and your prompt has %d tokens, which leaves %d.",
                          request.max_tokens_field, max_tokens, model.max_context, num_tokens,
                          room));
    }
    prepared.max_tokens.push_back(max_tokens);
  }
  return absl::OkStatus();
}

absl::Status CheckTokenIds(const GenerationRequest& request, const ServedModel& model) {
  for (const auto& [token, amount] : request.sampling.logit_bias) {
    if (token >= model.tokenizer->vocab_size()) {
      return FieldError("logit_bias", "invalid_value",
                        absl::StrFormat("token id out of range: %d, the vocabulary has %d", token,
                                        model.tokenizer->vocab_size()));
    }
  }
  return CheckTokens(request.stop_token_ids, "stop_token_ids", model);
}

std::uint64_t DrawSeed() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

void FillAnswerOptions(GenerationRequest& request, AnswerOptions& answer) {
  answer.stop = std::move(request.stop);
  answer.include_stop_str_in_output = request.include_stop_str_in_output;
  answer.skip_special_tokens = request.skip_special_tokens;
  answer.continues_prompt =
      request.kind != GenerationRequest::Kind::kChat || request.chat.continue_final_message;
  answer.stop_token_ids = request.stop_token_ids;
  answer.min_tokens = request.sampling.min_tokens;
  answer.logprobs = request.sampling.logprobs;
  answer.num_top_logprobs = request.sampling.top_logprobs;
  answer.echo = request.echo;
  answer.return_token_ids = request.return_token_ids;
  answer.wants_prompt_logprobs = request.wants_prompt_logprobs;
  answer.discard_output = request.max_tokens == 0;
  answer.include_usage = request.include_usage;
}

}  // namespace

absl::Status CheckTokens(const std::vector<std::int32_t>& tokens, std::string_view param,
                         const ServedModel& model) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= model.tokenizer->vocab_size()) {
      return FieldError(param, "invalid_value",
                        absl::StrFormat("token id out of range: %d at %d, the vocabulary has %d",
                                        tokens[i], i, model.tokenizer->vocab_size()));
    }
  }
  return absl::OkStatus();
}

SamplingParams PreparedRequest::SamplingOf(int choice) const {
  SamplingParams result = sampling;
  result.max_tokens = max_tokens[choice / n];
  result.seed = sampling.seed + static_cast<std::uint64_t>(choice % n);
  return result;
}

absl::StatusOr<std::string> RenderChat(const text::ChatTemplateInput& chat,
                                       const ServedModel& model, const Clock& clock) {
  if (model.chat_templates == nullptr) {
    return FieldError("messages", "no_chat_template",
                      "the model has no chat template; use /v1/completions, or start the router "
                      "with --chat-template FILE");
  }
  if (const auto chosen = model.chat_templates->Select(chat); !chosen.ok()) {
    return FieldError("chat_template", "invalid_value", std::string(chosen.status().message()));
  }
  const absl::StatusOr<std::string> rendered = model.chat_templates->Render(chat, clock);
  if (absl::IsResourceExhausted(rendered.status())) {
    // The template's limits, which the same request would reach again: not "come back later".
    return FieldError("messages", "chat_template", std::string(rendered.status().message()));
  }
  if (!rendered.ok()) return WithErrorDetails(rendered.status(), "messages", "chat_template");
  return rendered;
}

absl::StatusOr<std::vector<std::int32_t>> EncodeChat(const text::ChatTemplateInput& chat,
                                                     bool add_special_tokens,
                                                     const ServedModel& model, const Clock& clock) {
  BATON_ASSIGN_OR_RETURN(const std::string rendered, RenderChat(chat, model, clock));
  return EncodeText(rendered, add_special_tokens, "messages", model);
}

absl::StatusOr<PreparedRequest> Prepare(GenerationRequest request, const ServedModel& model,
                                        const PrepareOptions& options, const Clock& clock) {
  if (!model.Serves(request.model)) return ModelNotFound(request.model);
  PreparedRequest prepared;
  prepared.kind = request.kind;
  prepared.stream = request.stream;
  prepared.model = request.model.empty() ? model.names.front() : request.model;
  prepared.n = request.n;
  prepared.priority = request.priority;
  BATON_RETURN_IF_ERROR(CheckTokenIds(request, model));
  BATON_ASSIGN_OR_RETURN(prepared.prompts, EncodePrompts(request, model, clock));
  BATON_RETURN_IF_ERROR(ResolveLengths(request, model, options, prepared));
  prepared.sampling = request.sampling;
  ApplyDefaults(model, request.explicit_fields, prepared.sampling);
  prepared.sampling.seed =
      request.seed.has_value() ? static_cast<std::uint64_t>(*request.seed) : DrawSeed();
  prepared.sampling.stop_token_ids = request.stop_token_ids;
  if (!prepared.sampling.ignore_eos) {
    prepared.sampling.stop_token_ids.insert(prepared.sampling.stop_token_ids.end(),
                                            model.eos_ids.begin(), model.eos_ids.end());
  }
  FillAnswerOptions(request, prepared.answer);
  return prepared;
}

}  // namespace baton::router
