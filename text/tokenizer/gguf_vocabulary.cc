#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/builders.h"
#include "text/tokenizer/gguf_builders.h"

namespace baton::text {
namespace {

using checkpoint::GgufVocabulary;
using checkpoint::TextAssets;
using checkpoint::TokenType;

absl::Status CheckVocabulary(const GgufVocabulary& gguf) {
  if (gguf.tokens.empty() || gguf.types.size() != gguf.tokens.size() ||
      (!gguf.scores.empty() && gguf.scores.size() != gguf.tokens.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("GGUF vocabulary of ", gguf.tokens.size(), " tokens has ", gguf.types.size(),
                     " token types and ", gguf.scores.size(), " scores; each token needs one"));
  }
  absl::flat_hash_map<absl::string_view, std::size_t> seen;
  seen.reserve(gguf.tokens.size());
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    if (gguf.tokens[id].empty()) continue;  // a hole
    const auto [first, is_new] = seen.try_emplace(gguf.tokens[id], id);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("GGUF vocabulary has two tokens \"",
                                                     gguf.tokens[id], "\": ", first->second,
                                                     " and ", id));
    }
  }
  return absl::OkStatus();
}

// Phi-3's tokens that leave the white space behind them alone.
bool LeavesSpace(std::string_view text) {
  return text == "<unk>" || text == "<s>" || text == "<|endoftext|>";
}

std::vector<AddedToken> ReadAddedTokens(const GgufVocabulary& gguf, Pipeline& pipeline) {
  std::vector<AddedToken> added;
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    if (!IsAddedToken(gguf.types[id])) continue;
    AddedToken& token = added.emplace_back();
    token.id = static_cast<std::int32_t>(id);
    token.content = gguf.tokens[id];
    token.special = gguf.types[id] != TokenType::kUserDefined;
    token.rstrip = gguf.special_tokens_strip_right && !LeavesSpace(token.content);
    pipeline.tokens[id].bytes = token.content;
  }
  return added;
}

absl::Status CheckSpecialId(std::int32_t id, const GgufVocabulary& gguf, std::string_view role) {
  if (id >= 0 && static_cast<std::size_t>(id) < gguf.tokens.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(role.data(), role.size()),
                                                 " token id out of range: ", id, ", vocabulary of ",
                                                 gguf.tokens.size()));
}

// tokenizer.ggml.add_sep_token is about pairs of texts, which this program does not have.
absl::Status AddPostProcessor(const GgufVocabulary& gguf, const TextAssets& assets,
                              Pipeline& pipeline) {
  if (gguf.add_bos && assets.bos_id) {
    BATON_RETURN_IF_ERROR(CheckSpecialId(*assets.bos_id, gguf, "BOS"));
    pipeline.prefix_ids.push_back(*assets.bos_id);
  }
  if (gguf.add_eos && gguf.eos_id) {
    BATON_RETURN_IF_ERROR(CheckSpecialId(*gguf.eos_id, gguf, "EOS"));
    pipeline.suffix_ids.push_back(*gguf.eos_id);
  }
  if (gguf.unk_id) BATON_RETURN_IF_ERROR(CheckSpecialId(*gguf.unk_id, gguf, "unknown"));
  return absl::OkStatus();
}

absl::Status AddModel(const GgufVocabulary& gguf, Pipeline& pipeline) {
  if (gguf.model == "gpt2") return AddGgufByteLevel(gguf, pipeline);
  if (gguf.model == "llama") return AddGgufSentencePieceBpe(gguf, pipeline);
  if (gguf.model == "t5") return AddGgufUnigram(gguf, pipeline);
  return absl::FailedPreconditionError(
      absl::StrCat("unsupported tokenizer.ggml.model: \"", gguf.model,
                   "\"; supported are gpt2 (byte-level BPE), llama (SentencePiece BPE) and t5 "
                   "(SentencePiece Unigram)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pipeline>> BuildFromGguf(const GgufVocabulary& gguf,
                                                        const TextAssets& assets) {
  BATON_RETURN_IF_ERROR(CheckVocabulary(gguf));
  auto pipeline = std::make_unique<Pipeline>();
  pipeline->tokens.resize(gguf.tokens.size());
  for (Pipeline::Token& token : pipeline->tokens) token.exists = true;
  BATON_RETURN_IF_ERROR(AddPostProcessor(gguf, assets, *pipeline));
  BATON_RETURN_IF_ERROR(AddModel(gguf, *pipeline));
  pipeline->Finish(ReadAddedTokens(gguf, *pipeline));
  return pipeline;
}

}  // namespace baton::text
