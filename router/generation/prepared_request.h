#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/sampling_params.h"
#include "router/api/generation_request.h"
#include "router/served_model.h"

namespace baton::router {

// What the answer to one request should look like, the same for all its choices.
struct AnswerOptions {
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  // The output goes on where the prompt ended, so that the space a tokenizer adds in front of a
  // text belongs to it; else it is a text of its own.
  bool continues_prompt = false;
  std::vector<std::int32_t> stop_token_ids;  // the request's own, to tell them from the model's
  std::int32_t min_tokens = 0;
  bool logprobs = false;
  std::int32_t num_top_logprobs = 0;
  bool echo = false;
  bool return_token_ids = false;
  bool wants_prompt_logprobs = false;
  // The client asked for no output tokens, only for its prompt: the one that workers must compute
  // is thrown away.
  bool discard_output = false;
  bool include_usage = false;
};

struct PreparedPrompt {
  std::vector<std::int32_t> tokens;
  std::string text;  // set when the answer echoes it
};

// A request whose prompts are token ids and whose parameters are final: ready to be dispatched. Its
// choices are numbered prompt by prompt: choice = prompt * n + i.
struct PreparedRequest {
  GenerationRequest::Kind kind = GenerationRequest::Kind::kChat;
  bool stream = false;
  std::string model;  // the name to answer with
  std::vector<PreparedPrompt> prompts;
  std::int32_t n = 1;
  SamplingParams sampling;               // of choice 0; max_tokens and seed differ per choice
  std::vector<std::int32_t> max_tokens;  // per prompt
  std::int32_t priority = 0;
  AnswerOptions answer;

  int num_choices() const { return static_cast<int>(prompts.size()) * n; }
  // Of one choice: sampling with its max_tokens, and seed + its place among the n, so that a seeded
  // request gives the same n choices every time.
  SamplingParams SamplingOf(int choice) const;
};

struct PrepareOptions {
  std::int32_t default_completion_tokens = 16;  // OpenAI's; 0 = what the context leaves
  std::int32_t default_chat_tokens = 0;
};

// Renders the chat template, tokenizes, applies the model's sampling defaults and checks what
// depends on the model. O(length of the prompt).
//   kNotFound         another model's name
//   kInvalidArgument  too long (code context_length_exceeded; says both lengths), a token id beyond
//                     the vocabulary, a chat the template refuses
absl::StatusOr<PreparedRequest> Prepare(GenerationRequest request, const ServedModel& model,
                                        const PrepareOptions& options, const Clock& clock);

// The prompt that the model's template makes of a chat.
//   kInvalidArgument  the model has no chat template, or none of the name asked for, or it refuses
//                     the messages
absl::StatusOr<std::string> RenderChat(const text::ChatTemplateInput& chat,
                                       const ServedModel& model, const Clock& clock);
// The same, tokenized.
absl::StatusOr<std::vector<std::int32_t>> EncodeChat(const text::ChatTemplateInput& chat,
                                                     bool add_special_tokens,
                                                     const ServedModel& model, const Clock& clock);

// kInvalidArgument, blaming `param`, for an id outside the model's vocabulary.
absl::Status CheckTokens(const std::vector<std::int32_t>& tokens, std::string_view param,
                         const ServedModel& model);

}  // namespace baton::router
