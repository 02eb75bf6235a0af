#include "text/tokenizer/pipeline.h"

#include <utility>

namespace baton::text {

std::string Pipeline::Normalize(std::string_view text, bool& keeps_front) const {
  std::string out(text);
  for (const auto& normalizer : normalizers) out = normalizer->Normalize(out, keeps_front);
  return out;
}

std::string_view Pipeline::BytesOf(std::int32_t id, bool is_first) const {
  if (is_first && !first_bytes.empty()) {
    const auto it = first_bytes.find(id);
    if (it != first_bytes.end()) return it->second;
  }
  return tokens[static_cast<std::size_t>(id)].bytes;
}

void Pipeline::Finish(std::vector<AddedToken> added) {
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].exists) id_by_bytes.try_emplace(tokens[id].bytes, static_cast<int>(id));
  }
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  std::vector<std::string> raw_patterns;
  std::vector<std::string> normalized_patterns;
  for (AddedToken& token : added) {
    id_by_bytes[token.content] = token.id;  // an added token wins over one of the model
    tokens[token.id].special = token.special;
    if (token.normalized) {
      bool keeps_front = true;
      normalized_patterns.push_back(Normalize(token.content, keeps_front));
      normalized.push_back(std::move(token));
    } else {
      raw_patterns.push_back(token.content);
      raw.push_back(std::move(token));
    }
  }
  raw_matcher.Build(std::move(raw), raw_patterns);
  normalized_matcher.Build(std::move(normalized), normalized_patterns);
}

}  // namespace baton::text
