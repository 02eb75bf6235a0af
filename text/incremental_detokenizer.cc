#include "text/incremental_detokenizer.h"

#include <utility>

#include "text/tokenizer/pipeline.h"

namespace baton::text {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                                               StreamFront front)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      is_first_(front == StreamFront::kTextFront),
      stripper_(tokenizer.pipeline_->strip, is_first_) {}

std::string IncrementalDetokenizer::Append(std::span<const std::int32_t> ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    if (!tokenizer_.Exists(id) || (skip_special_tokens_ && tokenizer_.IsSpecial(id))) continue;
    text += decoder_.Append(tokenizer_.pipeline_->BytesOf(id, std::exchange(is_first_, false)));
  }
  return stripper_.Append(std::move(text));
}

std::string IncrementalDetokenizer::Finish() { return stripper_.Append(decoder_.Finish()); }

}  // namespace baton::text
