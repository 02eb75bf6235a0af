#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/api/generation_request.h"
#include "router/api/json_fields.h"
#include "text/jinja/value.h"

// OpenAI's request bodies with vLLM's extra fields. Unknown fields are ignored and null counts as
// absent; a wrong type or range is kInvalidArgument that names the field (see api_error.h).
namespace baton::router {

// Bounds on what one request may ask for.
inline constexpr std::int32_t kMaxChoices = 128;  // n; OpenAI's bound
inline constexpr std::int32_t kMaxTopLogprobs = 20;
inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopBytes =
    1024;                                        // of all stop strings: a matcher takes 1 KiB each
inline constexpr std::size_t kMaxPrompts = 128;  // of one completion request

absl::StatusOr<GenerationRequest> ParseChatRequest(std::string_view body);
absl::StatusOr<GenerationRequest> ParseCompletionRequest(std::string_view body);

// POST /tokenize: a prompt or a chat.
struct TokenizeRequest {
  std::string model;
  bool is_chat = false;
  std::string prompt;
  text::ChatTemplateInput chat;
  std::optional<bool> add_special_tokens;
  bool return_token_strs = false;
};
absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(std::string_view body);

// POST /detokenize
struct DetokenizeRequest {
  std::string model;
  std::vector<std::int32_t> tokens;
};
absl::StatusOr<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body);

// Checks what JsonFields reads of sampling and stopping, which all doors share; also for requests
// that did not come as JSON.
absl::Status CheckStopStrings(const std::vector<std::string>& stop);

}  // namespace baton::router
