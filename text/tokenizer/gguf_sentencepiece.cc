#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "text/tokenizer/character_bpe.h"
#include "text/tokenizer/gguf_builders.h"
#include "text/tokenizer/sentencepiece_bpe.h"
#include "text/tokenizer/sentencepiece_normalizer.h"
#include "text/tokenizer/space_mark_cuts.h"
#include "text/tokenizer/unigram.h"

namespace baton::text {
namespace {

using checkpoint::GgufVocabulary;
using checkpoint::TokenType;

// The byte of a token "<0xNN>".
std::optional<unsigned char> ParseByteToken(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text.back() != '>') return std::nullopt;
  std::uint32_t byte = 0;
  if (!absl::SimpleHexAtoi(absl::string_view(text.data() + 3, 2), &byte)) return std::nullopt;
  return static_cast<unsigned char>(byte);
}

using ByteIds = std::array<std::int32_t, 256>;

// Fills the decoded bytes of all tokens that are not added ones and returns the byte tokens' ids.
absl::StatusOr<ByteIds> ReadTokens(const GgufVocabulary& gguf, Pipeline& pipeline) {
  ByteIds byte_ids = SentencePieceBpeSpec::MakeNoBytes();
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    const std::string& text = gguf.tokens[id];
    if (IsAddedToken(gguf.types[id])) continue;
    if (gguf.types[id] != TokenType::kByte) {
      pipeline.tokens[id].bytes = absl::StrReplaceAll(
          text, {{absl::string_view(kSpaceMark.data(), kSpaceMark.size()), " "}});
      continue;
    }
    const std::optional<unsigned char> byte = ParseByteToken(text);
    if (!byte) {
      return absl::InvalidArgumentError(
          absl::StrCat("byte token is not spelled <0xNN>: number ", id, ", \"", text, "\""));
    }
    byte_ids[*byte] = static_cast<std::int32_t>(id);
    pipeline.tokens[id].bytes = std::string(1, static_cast<char>(*byte));
    pipeline.tokens[id].is_byte = true;
  }
  return byte_ids;
}

std::string WithMarks(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{" ", absl::string_view(kSpaceMark.data(), kSpaceMark.size())}});
}

// A token that merging or segmenting may give.
bool IsPiece(const GgufVocabulary& gguf, std::size_t id) {
  const TokenType type = gguf.types[id];
  return !gguf.tokens[id].empty() && (type == TokenType::kNormal || type == TokenType::kUnused ||
                                      type == TokenType::kUndefined);
}

std::int32_t FindUnknown(const GgufVocabulary& gguf) {
  if (gguf.unk_id) return *gguf.unk_id;
  const auto unknown = std::find(gguf.types.begin(), gguf.types.end(), TokenType::kUnknown);
  return unknown == gguf.types.end() ? -1 : static_cast<std::int32_t>(unknown - gguf.types.begin());
}

// Files made without SentencePiece's own model have no scores, or the same one everywhere.
bool HasScores(const GgufVocabulary& gguf) {
  return std::adjacent_find(gguf.scores.begin(), gguf.scores.end(), std::not_equal_to<>()) !=
         gguf.scores.end();
}

// Sets the steps around the model: the normalizer, and the space that decoding takes away again.
absl::Status AddNormalizer(const GgufVocabulary& gguf, Pipeline& pipeline) {
  SentencePieceNormalization options;
  options.add_space_prefix = gguf.add_space_prefix;
  options.remove_extra_whitespaces = gguf.remove_extra_whitespaces;
  if (!gguf.precompiled_charsmap.empty()) {
    BATON_ASSIGN_OR_RETURN(options.charsmap, PrecompiledCharsmap::Parse(gguf.precompiled_charsmap));
  }
  pipeline.normalizers.push_back(MakeSentencePieceNormalizer(std::move(options)));
  if (gguf.add_space_prefix) pipeline.strip = {.character = " ", .max_front = 1};
  return absl::OkStatus();
}

absl::Status AddModelByScores(const GgufVocabulary& gguf, const ByteIds& byte_ids,
                              Pipeline& pipeline) {
  SentencePieceBpeSpec spec;
  spec.byte_ids = byte_ids;
  spec.unk_id = FindUnknown(gguf);
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    if (gguf.types[id] == TokenType::kUserDefined && !gguf.tokens[id].empty()) {
      // Already found in the raw text; here are those that normalizing has made.
      spec.user_defined.push_back({WithMarks(gguf.tokens[id]), static_cast<std::int32_t>(id)});
    }
    if (!IsPiece(gguf, id)) continue;
    spec.pieces.push_back({gguf.tokens[id], static_cast<std::int32_t>(id), gguf.scores[id],
                           gguf.types[id] == TokenType::kUnused});
  }
  BATON_ASSIGN_OR_RETURN(pipeline.model, SentencePieceBpe::Create(std::move(spec)));
  return absl::OkStatus();
}

absl::Status AddModelByMerges(const GgufVocabulary& gguf, Pipeline& pipeline) {
  if (gguf.merges.empty()) {
    return absl::FailedPreconditionError(
        "unsupported vocabulary: tokenizer.ggml.scores is missing or the same for all tokens and "
        "there are no merges, so that the file does not say how to tokenize; convert the model "
        "anew");
  }
  BpeSpec spec;
  BATON_ASSIGN_OR_RETURN(spec.merges, ParseGgufMerges(gguf));
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    spec.vocabulary.emplace_back(gguf.tokens[id], static_cast<std::int32_t>(id));
  }
  if (const std::int32_t unknown = FindUnknown(gguf); unknown >= 0) {
    spec.unk_token = gguf.tokens[static_cast<std::size_t>(unknown)];
  }
  spec.fuse_unk = true;
  spec.byte_fallback = true;
  BATON_ASSIGN_OR_RETURN(pipeline.model, CharacterBpe::Create(spec));
  return absl::OkStatus();
}

}  // namespace

absl::Status AddGgufSentencePieceBpe(const GgufVocabulary& gguf, Pipeline& pipeline) {
  BATON_RETURN_IF_ERROR(AddNormalizer(gguf, pipeline));
  BATON_ASSIGN_OR_RETURN(const ByteIds byte_ids, ReadTokens(gguf, pipeline));
  return HasScores(gguf) ? AddModelByScores(gguf, byte_ids, pipeline)
                         : AddModelByMerges(gguf, pipeline);
}

absl::Status AddGgufUnigram(const GgufVocabulary& gguf, Pipeline& pipeline) {
  if (gguf.scores.empty()) {
    return absl::InvalidArgumentError(
        "missing key: 'tokenizer.ggml.scores', without which t5's Unigram can't choose tokens");
  }
  BATON_RETURN_IF_ERROR(AddNormalizer(gguf, pipeline));
  UnigramSpec spec;
  BATON_ASSIGN_OR_RETURN(const ByteIds byte_ids, ReadTokens(gguf, pipeline));
  spec.byte_ids = byte_ids;
  spec.byte_fallback =
      std::find(gguf.types.begin(), gguf.types.end(), TokenType::kByte) != gguf.types.end();
  spec.unk_id = FindUnknown(gguf);
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    if (gguf.types[id] == TokenType::kUserDefined && !gguf.tokens[id].empty()) {
      // The score that the reference gives those that normalizing has made.
      spec.vocabulary.push_back({WithMarks(gguf.tokens[id]), static_cast<std::int32_t>(id), 0.0});
    }
    // Unused pieces have no part in SentencePiece's Unigram.
    if (!IsPiece(gguf, id) || gguf.types[id] == TokenType::kUnused) continue;
    spec.vocabulary.push_back({gguf.tokens[id], static_cast<std::int32_t>(id), gguf.scores[id]});
  }
  BATON_ASSIGN_OR_RETURN(pipeline.model, Unigram::Create(std::move(spec)));
  return absl::OkStatus();
}

}  // namespace baton::text
