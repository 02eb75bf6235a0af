#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/sampling_params.h"
#include "router/core/sequence.h"
#include "router/generation/prepared_request.h"
#include "text/incremental_detokenizer.h"
#include "text/stop_matcher.h"

namespace baton::router {

// What is new of one choice. Deltas that follow each other can be merged into one.
struct ChoiceDelta {
  std::int32_t index = 0;
  bool first = false;  // of the choice
  std::string text;
  std::vector<std::int32_t> token_ids;        // when asked for
  std::vector<SampledToken> logprobs;         // when asked for; of tokens whose text is out
  std::vector<SampledToken> prompt_logprobs;  // with the first delta
  FinishReason finish = FinishReason::kNone;  // not kNone on the last one
  std::optional<std::string> stop_string;     // that ended it
  std::optional<std::int32_t> stop_token;     // of the request's own, that ended it

  bool finished() const { return finish != FinishReason::kNone; }
  void Merge(ChoiceDelta later);
};

// Turns one choice's tokens into what its client sees: text without half characters, without stop
// strings and their tokens, and the log-probabilities that belong to it. Not thread-safe.
class ChoiceText {
 public:
  // The references must outlive this object.
  ChoiceText(const text::Tokenizer& tokenizer, const AnswerOptions& answer, std::int32_t index);

  // After a delta that is finished() nothing may follow.
  ChoiceDelta Append(const NewTokens& news);

  // Output tokens taken so far, up to the one that completed a stop string.
  std::int32_t num_tokens() const { return num_tokens_; }

 private:
  struct HeldLogprob {
    SampledToken token;
    std::size_t end_bytes;  // where its text ends in the output
  };

  void AppendToken(const SampledToken& token, bool hide_text, ChoiceDelta& delta);
  void Show(const std::string& piece, ChoiceDelta& delta);
  void Finish(const NewTokens& news, ChoiceDelta& delta);
  void ReleaseLogprobs(bool all, ChoiceDelta& delta);
  // The stop token that ended the output, if one did.
  std::optional<std::int32_t> StopToken(const NewTokens& news) const;

  const AnswerOptions& answer_;
  const std::int32_t index_;
  text::IncrementalDetokenizer detokenizer_;
  text::StopMatcher matcher_;
  std::int32_t num_tokens_ = 0;
  bool started_ = false;
  std::size_t text_bytes_ = 0;   // detokenized so far
  std::size_t shown_bytes_ = 0;  // of these, given out
  std::deque<HeldLogprob> held_;
};

}  // namespace baton::router
