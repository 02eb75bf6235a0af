#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/builders.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/byte_level_bpe.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

using checkpoint::GgufVocabulary;
using checkpoint::TextAssets;
using checkpoint::TokenType;

// Tokens matched in the text itself and decoded as they are spelled.
bool IsAdded(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown;
}

absl::StatusOr<BpeSpec> MakeSpec(const GgufVocabulary& gguf) {
  BpeSpec spec;
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    spec.vocabulary.emplace_back(gguf.tokens[id], static_cast<std::int32_t>(id));
  }
  spec.merges.reserve(gguf.merges.size());
  for (const std::string& merge : gguf.merges) {
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "BPE merge is not two tokens with a space between: number ", spec.merges.size()));
    }
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return spec;
}

absl::Status AddPreTokenizers(const GgufPreTokenizer& known, Pipeline& pipeline) {
  for (const std::string_view regex : known.regexes) {
    BATON_ASSIGN_OR_RETURN(Regex compiled, Regex::Compile(regex));
    pipeline.pre_tokenizers.push_back(
        MakeSplit(std::move(compiled), SplitBehavior::kIsolated, /*invert=*/false));
  }
  if (!known.normalizer.empty()) {
    BATON_ASSIGN_OR_RETURN(auto normalizer, MakeUnicodeNormalizer(known.normalizer));
    pipeline.normalizers.push_back(std::move(normalizer));
  }
  return absl::OkStatus();
}

std::vector<AddedToken> AddTokens(const GgufVocabulary& gguf, Pipeline& pipeline) {
  std::vector<AddedToken> added;
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    const TokenType type = gguf.types.empty() ? TokenType::kNormal : gguf.types[id];
    const std::string& text = gguf.tokens[id];
    Pipeline::Token token = {text, /*exists=*/true, /*special=*/false};
    if (IsAdded(type)) {
      AddedToken as_added;
      as_added.id = static_cast<std::int32_t>(id);
      as_added.content = text;
      as_added.special = type != TokenType::kUserDefined;
      added.push_back(std::move(as_added));
    } else {
      token.bytes = BytesFromAlphabet(text).value_or(text);
    }
    pipeline.tokens.push_back(std::move(token));
  }
  return added;
}

absl::Status CheckSpecialId(std::int32_t id, const GgufVocabulary& gguf, std::string_view role) {
  if (id >= 0 && static_cast<std::size_t>(id) < gguf.tokens.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(role.data(), role.size()),
                                                 " token id out of range: ", id, ", vocabulary of ",
                                                 gguf.tokens.size()));
}

absl::Status AddPostProcessor(const GgufVocabulary& gguf, const TextAssets& assets,
                              Pipeline& pipeline) {
  if (gguf.add_bos && assets.bos_id) {
    BATON_RETURN_IF_ERROR(CheckSpecialId(*assets.bos_id, gguf, "BOS"));
    pipeline.prefix_ids.push_back(*assets.bos_id);
  }
  if (gguf.add_eos && !assets.eos_ids.empty()) {
    BATON_RETURN_IF_ERROR(CheckSpecialId(assets.eos_ids.front(), gguf, "EOS"));
    pipeline.suffix_ids.push_back(assets.eos_ids.front());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pipeline>> BuildFromGguf(const GgufVocabulary& gguf,
                                                        const TextAssets& assets) {
  if (gguf.model != "gpt2") {
    return absl::FailedPreconditionError(
        absl::StrCat("unsupported tokenizer.ggml.model: \"", gguf.model, "\"; supported is gpt2"));
  }
  const GgufPreTokenizer* known = FindGgufPreTokenizer(gguf.pre);
  if (known == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("unsupported tokenizer.ggml.pre: \"", gguf.pre, "\""));
  }
  if (gguf.tokens.empty() || (!gguf.types.empty() && gguf.types.size() != gguf.tokens.size())) {
    return absl::InvalidArgumentError(absl::StrCat("GGUF vocabulary of ", gguf.tokens.size(),
                                                   " tokens has ", gguf.types.size(),
                                                   " token types"));
  }
  auto pipeline = std::make_unique<Pipeline>();
  BATON_RETURN_IF_ERROR(AddPreTokenizers(*known, *pipeline));
  BATON_ASSIGN_OR_RETURN(BpeSpec spec, MakeSpec(gguf));
  spec.ignore_merges = known->ignore_merges;
  BATON_ASSIGN_OR_RETURN(pipeline->model, ByteLevelBpe::Create(spec));
  std::vector<AddedToken> added = AddTokens(gguf, *pipeline);
  BATON_RETURN_IF_ERROR(AddPostProcessor(gguf, assets, *pipeline));
  pipeline->Finish(std::move(added));
  return pipeline;
}

}  // namespace baton::text
