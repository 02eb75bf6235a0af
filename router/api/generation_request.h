#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/sampling_params.h"
#include "text/chat_template_input.h"

namespace baton::router {

// One prompt as a client gives it: text to be tokenized, or token ids.
struct PromptInput {
  std::string text;
  std::vector<std::int32_t> tokens;
  bool is_tokens = false;
};

// A request for generation from any door (chat, completions, gRPC), its fields checked one by one;
// what depends on the model (lengths, defaults, token ids) is not resolved yet.
struct GenerationRequest {
  enum class Kind : std::uint8_t { kChat, kCompletion };
  Kind kind = Kind::kChat;
  std::string model;                       // empty = the one served
  std::vector<PromptInput> prompts;        // kCompletion
  text::ChatTemplateInput chat;            // kChat
  std::optional<bool> add_special_tokens;  // default: for completions only

  // As sent; absent fields keep SamplingParams' defaults unless the model's own say otherwise.
  SamplingParams sampling;
  // Names of sampling fields the request itself set, which the model's defaults must not override.
  std::vector<std::string> explicit_fields;
  std::optional<std::int32_t> max_tokens;
  std::string max_tokens_field = "max_tokens";  // which of the two names the client used
  std::optional<std::int64_t> seed;
  std::vector<std::int32_t> stop_token_ids;  // the request's own
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  std::int32_t n = 1;
  std::int32_t priority = 0;
  std::string user;

  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  bool return_token_ids = false;
  bool wants_prompt_logprobs = false;  // vLLM's field in the answer, beside what echo needs
};

}  // namespace baton::router
