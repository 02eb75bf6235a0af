#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/builders.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/byte_level_bpe.h"
#include "text/tokenizer/gguf_builders.h"

namespace baton::text {
namespace {

using checkpoint::GgufVocabulary;

absl::StatusOr<const GgufPreTokenizer*> FindPreTokenizer(const GgufVocabulary& gguf) {
  const GgufPreTokenizer* known = FindGgufPreTokenizer(gguf.pre);
  if (known != nullptr) return known;
  if (gguf.pre.empty() || gguf.pre == "default") {
    return absl::FailedPreconditionError(
        absl::StrCat("tokenizer.ggml.pre is ", gguf.pre.empty() ? "missing" : "\"default\"",
                     ": the file does not say how its model splits text into words, and a guess "
                     "would give wrong "
                     "tokens; convert the model anew, or set the key to one of: ",
                     KnownGgufPreTokenizers()));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("unsupported tokenizer.ggml.pre: \"", gguf.pre,
                   "\"; supported are: ", KnownGgufPreTokenizers()));
}

absl::StatusOr<BpeSpec> MakeSpec(const GgufVocabulary& gguf) {
  BpeSpec spec;
  spec.vocabulary.reserve(gguf.tokens.size());
  for (std::size_t i = 0; i < gguf.tokens.size(); ++i) {
    spec.vocabulary.emplace_back(gguf.tokens[i], static_cast<std::int32_t>(i));
  }
  BATON_ASSIGN_OR_RETURN(spec.merges, ParseGgufMerges(gguf));
  return spec;
}

}  // namespace

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseGgufMerges(
    const GgufVocabulary& gguf) {
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(gguf.merges.size());
  for (const std::string& merge : gguf.merges) {
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("BPE merge is not two tokens with a space between: number ", merges.size()));
    }
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return merges;
}

absl::Status AddGgufByteLevel(const GgufVocabulary& gguf, Pipeline& pipeline) {
  BATON_ASSIGN_OR_RETURN(const GgufPreTokenizer* known, FindPreTokenizer(gguf));
  for (const std::string_view regex : known->regexes) {
    BATON_ASSIGN_OR_RETURN(Regex compiled, Regex::Compile(regex));
    pipeline.pre_tokenizers.push_back(
        MakeSplit(std::move(compiled), SplitBehavior::kIsolated, /*invert=*/false));
  }
  if (!known->normalizer.empty()) {
    BATON_ASSIGN_OR_RETURN(auto normalizer, MakeUnicodeNormalizer(known->normalizer));
    pipeline.normalizers.push_back(std::move(normalizer));
  }
  BATON_ASSIGN_OR_RETURN(BpeSpec spec, MakeSpec(gguf));
  spec.ignore_merges = known->ignore_merges;
  BATON_ASSIGN_OR_RETURN(pipeline.model, ByteLevelBpe::Create(spec));
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    if (IsAddedToken(gguf.types[id])) continue;
    pipeline.tokens[id].bytes = BytesFromAlphabet(gguf.tokens[id]).value_or(gguf.tokens[id]);
  }
  return absl::OkStatus();
}

}  // namespace baton::text
