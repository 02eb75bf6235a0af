#include "tests/support/gguf_from_json.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "nlohmann/json.hpp"

namespace baton::testing {
namespace {

using checkpoint::GgufVocabulary;
using checkpoint::TextAssets;
using checkpoint::TokenType;
using nlohmann::json;

std::string WithSpaces(std::string text) {
  const std::string mark = "\u2581";
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    text.replace(at, mark.size(), " ");
  }
  return text;
}

// The converter takes these for control tokens, whatever the file says.
bool LooksSpecial(const std::string& text) {
  return text == "<pad>" || text == "<mask>" || (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<\uff5c") && text.ends_with("\uff5c>")) ||
         (text.starts_with("<unused") && text.ends_with(">"));
}

// Tokens of the model, holes as the converter names them, then the added ones over them.
void ReadTokens(const json& file, GgufVocabulary& gguf) {
  std::size_t size = 0;
  for (const auto& [token, id] : file["model"]["vocab"].items()) {
    size = std::max(size, id.get<std::size_t>() + 1);
  }
  for (const json& added : file["added_tokens"]) {
    size = std::max(size, added["id"].get<std::size_t>() + 1);
  }
  gguf.tokens.resize(size);
  gguf.types.assign(size, TokenType::kUnused);
  for (std::size_t id = 0; id < size; ++id) gguf.tokens[id] = "[PAD" + std::to_string(id) + "]";
  for (const auto& [token, id] : file["model"]["vocab"].items()) {
    gguf.tokens[id.get<std::size_t>()] = token;
    gguf.types[id.get<std::size_t>()] = TokenType::kNormal;
  }
  for (const json& added : file["added_tokens"]) {
    const auto id = added["id"].get<std::size_t>();
    const auto content = added["content"].get<std::string>();
    const bool special = added["special"].get<bool>() || LooksSpecial(content);
    gguf.tokens[id] = special ? content : WithSpaces(content);
    gguf.types[id] = special ? TokenType::kControl : TokenType::kUserDefined;
  }
}

std::pair<std::string, std::string> ReadMerge(const json& merge) {
  if (merge.is_array()) return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const auto text = merge.get<std::string>();
  const std::size_t space = text.find(' ', 1);
  return {text.substr(0, space), text.substr(space + 1)};
}

// The first token of the post-processor's template.
std::optional<std::int32_t> FirstSpecialId(const json& processor) {
  if (processor.is_null()) return std::nullopt;
  if (processor["type"] == "Sequence") {
    for (const json& inner : processor["processors"]) {
      if (const auto id = FirstSpecialId(inner)) return id;
    }
  }
  if (processor["type"] != "TemplateProcessing") return std::nullopt;
  const json& first = processor["single"][0];
  if (!first.contains("SpecialToken")) return std::nullopt;
  const auto name = first["SpecialToken"]["id"].get<std::string>();
  return processor["special_tokens"][name]["ids"][0].get<std::int32_t>();
}

TextAssets Begin(const json& file) {
  TextAssets assets;
  ReadTokens(file, assets.gguf.emplace());
  assets.bos_id = FirstSpecialId(file["post_processor"]);
  assets.gguf->add_bos = assets.bos_id.has_value();
  return assets;
}

}  // namespace

TextAssets GgufByteLevelFromJson(const std::string& tokenizer_json, std::string_view name) {
  const json file = json::parse(tokenizer_json);
  TextAssets assets = Begin(file);
  assets.gguf->model = "gpt2";
  assets.gguf->pre = std::string(name);
  for (const json& merge : file["model"]["merges"]) {
    const auto [left, right] = ReadMerge(merge);
    assets.gguf->merges.push_back(left + " " + right);
  }
  return assets;
}

TextAssets GgufSentencePieceFromJson(const std::string& tokenizer_json) {
  const json file = json::parse(tokenizer_json);
  TextAssets assets = Begin(file);
  GgufVocabulary& gguf = *assets.gguf;
  gguf.model = "llama";
  std::unordered_map<std::string, float> score_of;
  float rank = 0.0F;
  for (const json& merge : file["model"]["merges"]) {
    const auto [left, right] = ReadMerge(merge);
    score_of.try_emplace(left + right, -rank);
    rank += 1.0F;
  }
  gguf.scores.assign(gguf.tokens.size(), -rank);
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    const std::string& token = gguf.tokens[id];
    if (token == "<unk>") {
      gguf.types[id] = TokenType::kUnknown;
      gguf.unk_id = static_cast<std::int32_t>(id);
    }
    if (gguf.types[id] != TokenType::kNormal) continue;
    if (token.size() == 6 && token.starts_with("<0x")) gguf.types[id] = TokenType::kByte;
    if (const auto score = score_of.find(token); score != score_of.end()) {
      gguf.scores[id] = score->second;
    }
  }
  gguf.add_space_prefix = file["normalizer"].dump().find("Prepend") != std::string::npos;
  return assets;
}

}  // namespace baton::testing
