#include "checkpoint/gguf_vocabulary.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

// Roles with the keys of their ids. Those that end an output are marked.
struct Role {
  std::string_view key;
  std::string_view name;
  bool ends_output;
};

constexpr Role kRoles[] = {
    {"tokenizer.ggml.bos_token_id", "bos_token", false},
    {"tokenizer.ggml.eos_token_id", "eos_token", true},
    {"tokenizer.ggml.eot_token_id", "eot_token", true},
    {"tokenizer.ggml.eom_token_id", "eom_token", true},
    {"tokenizer.ggml.unknown_token_id", "unk_token", false},
    {"tokenizer.ggml.padding_token_id", "pad_token", false},
    {"tokenizer.ggml.seperator_token_id", "sep_token", false},  // spelled so in the format
};

// Texts by which llama.cpp recognises tokens that end an output where the file declares none.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>",         "<end_of_turn>", "<|endoftext|>",
    "<|eom_id|>", "<EOT>",      "<|end_of_text|>", "</s>",          "<|endofturn|>",
};

// Pre-tokenizers whose models begin with BOS where the file does not say.
constexpr std::string_view kBosByDefault[] = {
    "llama3",  "llama-v3", "llama-bpe", "falcon3", "falcon-h1",
    "pixtral", "midm-2.0", "lfm2",      "tekken",  "chameleon",
};

// Ids that old files of a kind leave out.
struct DefaultId {
  std::string_view model;
  std::string_view role;
  std::int32_t id;
};

constexpr DefaultId kDefaultIds[] = {
    {"llama", "bos_token", 1}, {"llama", "eos_token", 2}, {"llama", "unk_token", 0},
    {"t5", "eos_token", 1},    {"t5", "unk_token", 2},    {"t5", "pad_token", 0},
};

struct SamplingKey {
  std::string_view gguf;
  std::string_view name;  // generation_config.json's
};

constexpr SamplingKey kSamplingKeys[] = {
    {"general.sampling.temp", "temperature"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.penalty_repeat", "repetition_penalty"},
};

template <typename Range, typename Value>
bool Contains(const Range& range, const Value& value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

absl::Status CheckLength(std::string_view key, std::size_t length, std::size_t num_tokens) {
  if (length == num_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "metadata %s: %d entries, expected %d, one for each token", Quoted(key), length, num_tokens));
}

absl::Status ReadTypes(const GgufMetadata& metadata, GgufVocabulary& vocabulary) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  const std::size_t num_tokens = vocabulary.tokens.size();
  BATON_ASSIGN_OR_RETURN(const auto types, metadata.Integers(kKey));
  if (!types.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "missing key: ", Quoted(kKey),
        ", without which special tokens can't be told from text; convert the model anew"));
  }
  BATON_RETURN_IF_ERROR(CheckLength(kKey, types->size(), num_tokens));
  vocabulary.types.reserve(num_tokens);
  for (const std::int64_t type : *types) {
    if (type < 0 || type > static_cast<std::int64_t>(TokenType::kByte)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "metadata %s: token type out of range: %d, must be 0..6", Quoted(kKey), type));
    }
    vocabulary.types.push_back(static_cast<TokenType>(type));
  }
  return absl::OkStatus();
}

absl::Status ReadScores(const GgufMetadata& metadata, GgufVocabulary& vocabulary) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  BATON_ASSIGN_OR_RETURN(auto scores, metadata.Floats(kKey));
  if (!scores.has_value()) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(CheckLength(kKey, scores->size(), vocabulary.tokens.size()));
  vocabulary.scores = *std::move(scores);
  return absl::OkStatus();
}

absl::Status ReadFlags(const GgufMetadata& metadata, GgufVocabulary& vocabulary) {
  const bool unigram = vocabulary.model == "t5";
  const bool sentencepiece = vocabulary.model == "llama";
  BATON_ASSIGN_OR_RETURN(const auto add_bos, metadata.Bool("tokenizer.ggml.add_bos_token"));
  BATON_ASSIGN_OR_RETURN(const auto add_eos, metadata.Bool("tokenizer.ggml.add_eos_token"));
  BATON_ASSIGN_OR_RETURN(const auto space, metadata.Bool("tokenizer.ggml.add_space_prefix"));
  BATON_ASSIGN_OR_RETURN(const auto remove_extra,
                         metadata.Bool("tokenizer.ggml.remove_extra_whitespaces"));
  vocabulary.add_bos =
      add_bos.value_or(sentencepiece || Contains(kBosByDefault, std::string_view(vocabulary.pre)));
  vocabulary.add_eos = add_eos.value_or(unigram);
  vocabulary.add_space_prefix = space.value_or(sentencepiece || unigram);
  vocabulary.remove_extra_whitespaces = remove_extra.value_or(false);
  return absl::OkStatus();
}

absl::Status ReadCharsmap(const GgufMetadata& metadata, GgufVocabulary& vocabulary) {
  constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
  BATON_ASSIGN_OR_RETURN(const auto bytes, metadata.Integers(kKey));
  if (!bytes.has_value()) return absl::OkStatus();
  vocabulary.precompiled_charsmap.reserve(bytes->size());
  for (const std::int64_t byte : *bytes) {
    if (byte < -128 || byte > 255) {
      return absl::InvalidArgumentError(
          absl::StrFormat("metadata %s: not a byte: %d", Quoted(kKey), byte));
    }
    vocabulary.precompiled_charsmap.push_back(static_cast<char>(byte));
  }
  return absl::OkStatus();
}

absl::Status ReadModelName(const GgufMetadata& metadata, GgufVocabulary& vocabulary) {
  BATON_ASSIGN_OR_RETURN(const auto name, metadata.String("general.name"));
  const std::string lower = absl::AsciiStrToLower(
      name.has_value() ? absl::string_view(name->data(), name->size()) : absl::string_view());
  vocabulary.special_tokens_strip_right =
      absl::StrContains(lower, "phi-3") || absl::StrContains(lower, "phi3");
  return absl::OkStatus();
}

absl::StatusOr<GgufVocabulary> ReadVocabulary(const GgufMetadata& metadata,
                                              std::string_view model) {
  GgufVocabulary vocabulary;
  vocabulary.model = std::string(model);
  BATON_ASSIGN_OR_RETURN(const auto pre, metadata.String("tokenizer.ggml.pre"));
  vocabulary.pre = std::string(pre.value_or(""));
  BATON_ASSIGN_OR_RETURN(const auto* tokens, metadata.Strings("tokenizer.ggml.tokens"));
  if (tokens == nullptr || tokens->empty()) {
    return absl::InvalidArgumentError("missing key: 'tokenizer.ggml.tokens', the vocabulary");
  }
  if (tokens->size() > std::numeric_limits<std::int32_t>::max()) {
    return absl::InvalidArgumentError("metadata 'tokenizer.ggml.tokens': too many tokens");
  }
  vocabulary.tokens.assign(tokens->begin(), tokens->end());
  BATON_RETURN_IF_ERROR(ReadTypes(metadata, vocabulary));
  BATON_RETURN_IF_ERROR(ReadScores(metadata, vocabulary));
  BATON_ASSIGN_OR_RETURN(const auto* merges, metadata.Strings("tokenizer.ggml.merges"));
  if (merges != nullptr) vocabulary.merges.assign(merges->begin(), merges->end());
  if (merges == nullptr && model == "gpt2") {
    return absl::InvalidArgumentError(
        "missing key: 'tokenizer.ggml.merges', without which gpt2's BPE can't make tokens; convert "
        "the model anew");
  }
  BATON_RETURN_IF_ERROR(ReadFlags(metadata, vocabulary));
  BATON_RETURN_IF_ERROR(ReadCharsmap(metadata, vocabulary));
  BATON_RETURN_IF_ERROR(ReadModelName(metadata, vocabulary));
  return vocabulary;
}

absl::Status CheckTokenId(std::string_view key, std::int64_t id, std::size_t num_tokens) {
  if (id >= 0 && static_cast<std::size_t>(id) < num_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "metadata %s: token id out of range: %d, must be 0..%d", Quoted(key), id, num_tokens - 1));
}

// Not in the format's standard, but some converters write all ids that end an output so.
absl::Status ReadEndIds(const GgufMetadata& metadata, TextAssets& assets) {
  constexpr std::string_view kKey = "tokenizer.ggml.eog_token_ids";
  BATON_ASSIGN_OR_RETURN(const auto ids, metadata.Integers(kKey));
  if (!ids.has_value()) return absl::OkStatus();
  for (const std::int64_t id : *ids) {
    BATON_RETURN_IF_ERROR(CheckTokenId(kKey, id, assets.gguf->tokens.size()));
    assets.eos_ids.push_back(static_cast<std::int32_t>(id));
  }
  return absl::OkStatus();
}

std::optional<std::int64_t> DefaultIdOf(const GgufVocabulary& vocabulary, std::string_view role) {
  for (const DefaultId& known : kDefaultIds) {
    if (known.model != vocabulary.model || known.role != role) continue;
    if (static_cast<std::size_t>(known.id) < vocabulary.tokens.size()) return known.id;
  }
  return std::nullopt;
}

absl::Status ReadRoles(const GgufMetadata& metadata, TextAssets& assets) {
  const std::vector<std::string>& tokens = assets.gguf->tokens;
  for (const Role& role : kRoles) {
    BATON_ASSIGN_OR_RETURN(auto id, metadata.Integer(role.key));
    if (!id.has_value()) id = DefaultIdOf(*assets.gguf, role.name);
    if (!id.has_value() || *id == std::numeric_limits<std::uint32_t>::max()) continue;  // "none"
    BATON_RETURN_IF_ERROR(CheckTokenId(role.key, *id, tokens.size()));
    const auto token = static_cast<std::int32_t>(*id);
    assets.special_tokens[std::string(role.name)] = tokens[static_cast<std::size_t>(token)];
    if (role.name == "bos_token") assets.bos_id = token;
    if (role.name == "eos_token") assets.gguf->eos_id = token;
    if (role.name == "unk_token") assets.gguf->unk_id = token;
    if (role.ends_output) assets.eos_ids.push_back(token);
  }
  if (assets.gguf->add_bos && !assets.bos_id.has_value()) {
    return absl::InvalidArgumentError(
        "missing key: 'tokenizer.ggml.bos_token_id', since every prompt begins with it");
  }
  if (assets.gguf->add_eos && !assets.gguf->eos_id.has_value()) {
    return absl::InvalidArgumentError(
        "missing key: 'tokenizer.ggml.eos_token_id', since every prompt ends with it");
  }
  return absl::OkStatus();
}

void FindEndsByText(TextAssets& assets) {
  const GgufVocabulary& vocabulary = *assets.gguf;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const bool control = vocabulary.types[i] == TokenType::kControl;
    if (control && Contains(kEndTexts, std::string_view(vocabulary.tokens[i]))) {
      assets.eos_ids.push_back(static_cast<std::int32_t>(i));
    }
  }
}

// tokenizer.chat_template, and tokenizer.chat_template.NAME for each of tokenizer.chat_templates.
absl::Status ReadChatTemplates(const GgufMetadata& metadata, TextAssets& assets) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  BATON_ASSIGN_OR_RETURN(const auto plain, metadata.String(kKey));
  if (plain.has_value()) assets.chat_template = std::string(*plain);
  BATON_ASSIGN_OR_RETURN(const auto* names, metadata.Strings("tokenizer.chat_templates"));
  if (names == nullptr) return absl::OkStatus();
  for (const auto& name : *names) {
    const std::string key = absl::StrCat(std::string(kKey), ".", std::string(name));
    BATON_ASSIGN_OR_RETURN(const auto source, metadata.String(key));
    if (!source.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "missing key: ", Quoted(key), ", which 'tokenizer.chat_templates' announces"));
    }
    assets.named_chat_templates[std::string(name)] = std::string(*source);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TextAssets> ReadGgufTextAssets(const GgufMetadata& metadata) {
  TextAssets assets;
  BATON_ASSIGN_OR_RETURN(const auto model, metadata.String("tokenizer.ggml.model"));
  if (model.has_value() && *model != "no_vocab") {
    BATON_ASSIGN_OR_RETURN(assets.gguf, ReadVocabulary(metadata, *model));
    BATON_RETURN_IF_ERROR(ReadRoles(metadata, assets));
    BATON_RETURN_IF_ERROR(ReadEndIds(metadata, assets));
    if (assets.eos_ids.empty()) FindEndsByText(assets);
    std::sort(assets.eos_ids.begin(), assets.eos_ids.end());
    assets.eos_ids.erase(std::unique(assets.eos_ids.begin(), assets.eos_ids.end()),
                         assets.eos_ids.end());
  }
  BATON_RETURN_IF_ERROR(ReadChatTemplates(metadata, assets));
  for (const SamplingKey& key : kSamplingKeys) {
    BATON_ASSIGN_OR_RETURN(const auto number, metadata.Number(key.gguf));
    if (number.has_value()) assets.generation_defaults[std::string(key.name)] = *number;
  }
  return assets;
}

}  // namespace baton::checkpoint
