#include "text/incremental_detokenizer.h"

namespace baton::text {

std::string IncrementalDetokenizer::Append(std::span<const std::int32_t> ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    if (skip_special_tokens_ && tokenizer_.IsSpecial(id)) continue;
    text += decoder_.Append(tokenizer_.TokenBytes(id));
  }
  return text;
}

std::string IncrementalDetokenizer::Finish() { return decoder_.Finish(); }

}  // namespace baton::text
