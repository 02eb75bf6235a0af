#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "router/generation/choice_text.h"
#include "router/generation/generation.h"
#include "router/generation/prepared_request.h"
#include "router/served_model.h"

namespace baton::router {

// Writes one request's answer in OpenAI's JSON, streamed or whole. Stateful per choice, so it sees
// every delta of a choice once and in order. Not thread-safe.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // Appends the server-sent events ("data: {...}\n\n") for one delta; none when it shows nothing.
  virtual void AppendEvents(const ChoiceDelta& delta, std::string& out) = 0;
  // Appends the event that carries the usage.
  virtual void AppendUsageEvent(const Usage& usage, std::string& out) = 0;
  // The whole answer of a request that does not stream; `choices` by index, each merged into one.
  virtual std::string Body(const std::vector<ChoiceDelta>& choices, const Usage& usage) = 0;
};

// What a format needs besides the deltas.
struct AnswerContext {
  std::string id;                            // "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;                  // Unix seconds
  const PreparedRequest* request = nullptr;  // both must outlive the format
  const ServedModel* model = nullptr;
};

std::unique_ptr<AnswerFormat> MakeChatFormat(AnswerContext context);
std::unique_ptr<AnswerFormat> MakeCompletionFormat(AnswerContext context);

// Parts that both share.

// {"prompt_tokens":..,"completion_tokens":..,"total_tokens":..}
void AppendUsage(const Usage& usage, std::string& out);
// "stop", "length" or null
void AppendFinishReason(const ChoiceDelta& delta, std::string& out);
// The stop string or token id that ended the choice, or null.
void AppendStopReason(const ChoiceDelta& delta, std::string& out);
// vLLM's prompt_logprobs: [null, {"<id>": {"logprob":.., "rank":.., "decoded_token":..}}, ...]
void AppendPromptLogprobs(const std::vector<SampledToken>& tokens, const text::Tokenizer& tokenizer,
                          std::string& out);

}  // namespace baton::router
