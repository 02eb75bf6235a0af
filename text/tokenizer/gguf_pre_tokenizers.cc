#include <array>

#include "text/tokenizer/builders.h"

namespace baton::text {
namespace {

// The patterns are those of the models' own tokenizer.json files.
constexpr std::string_view kLlama3Regex =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen2Regex =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDeepseek3Words =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDeepseek3Cjk = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr std::string_view kTekkenRegex =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kO200kRegex =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDigit = "\\p{N}";

// What llama.cpp uses for a file that names no pre-tokenizer.
constexpr std::string_view kDefaultPunctuation = "[\\p{P}\\$\\+<=>\\^~\\|]+";

const auto& Registry() {
  static const std::array<GgufPreTokenizer, 27> registry = {{
      {"", {kDefaultPunctuation, kGpt2Regex, "\\p{N}+", "[0-9][0-9][0-9]"}},
      {"default", {kDefaultPunctuation, kGpt2Regex, "\\p{N}+", "[0-9][0-9][0-9]"}},
      {"gpt-2", {kGpt2Regex}},
      {"gpt2", {kGpt2Regex}},
      {"phi-2", {kGpt2Regex}},
      {"mpt", {kGpt2Regex}},
      {"olmo", {kGpt2Regex}},
      {"jais", {kGpt2Regex}},
      {"smollm", {kDigit, kGpt2Regex}},
      {"starcoder", {kDigit, kGpt2Regex}},
      {"refact", {kDigit, kGpt2Regex}},
      {"command-r", {kDigit, kGpt2Regex}, false, "NFC"},
      {"codeshell", {kDigit, kGpt2Regex}},
      {"exaone", {kDigit, kGpt2Regex}},
      {"llama3", {kLlama3Regex}, true},
      {"llama-v3", {kLlama3Regex}, true},
      {"llama-bpe", {kLlama3Regex}, true},
      {"dbrx", {kLlama3Regex}},
      {"smaug-bpe", {kLlama3Regex}},
      {"qwen2", {kQwen2Regex}, false, "NFC"},
      {"deepseek-r1-qwen", {kQwen2Regex}, false, "NFC"},
      {"stablelm2", {kQwen2Regex}},
      {"deepseek-v3", {"\\p{N}{1,3}", kDeepseek3Cjk, kDeepseek3Words}},
      {"tekken", {kTekkenRegex}, true},
      {"gpt-4o", {kO200kRegex}, true},
      {"o200k", {kO200kRegex}, true},
      {"llama4", {kO200kRegex}, true},
  }};
  return registry;
}

}  // namespace

const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name) {
  for (const GgufPreTokenizer& known : Registry()) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

}  // namespace baton::text
