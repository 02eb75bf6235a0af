#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "text/tokenizer/builders.h"
#include "text/tokenizer/word_scanner.h"

namespace baton::text {
namespace {

// The names are llama.cpp's (its file src/llama-vocab.cpp and convert_hf_to_gguf_update.py); the
// patterns are those of the models' own tokenizer.json files, which llama.cpp quotes where it has
// to write them differently. Where a tokenizer.json has several steps, each regex is one.
constexpr std::string_view kQwen35Regex =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kSeedCoderRegex =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}|"
    " ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kBailingMoeRegex =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kMinicpm5Regex =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDeepseekLlmWords =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295"
    "-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-"
    "\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-"
    "\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-"
    "\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-"
    "\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e"
    "\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-"
    "\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-"
    "\U0001e943]+";
constexpr std::string_view kDeepseekLlmPunctuation =
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr std::string_view kDeepseekCjk = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
// tokenization_kimi.py writes "[...&&[^\\p{Han}]]" for a class without Han characters.
constexpr std::string_view kKimiRegex =
    "[\\p{sc:Han}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{sc:Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])*"
    "(?:(?!\\p{sc:Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{sc:Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])+"
    "(?:(?!\\p{sc:Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kBloomRegex =
    " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+";
constexpr std::string_view kFalconPunctuation = "[\\p{P}\\$\\+<=>\\^~\\|`]+";

std::vector<GgufPreTokenizer> MakeRegistry() {
  std::vector<GgufPreTokenizer> registry;
  const auto add = [&](std::vector<std::string_view> names, std::vector<std::string_view> regexes,
                       bool ignore_merges = false, std::string_view normalizer = {}) {
    for (const std::string_view name : names) {
      registry.push_back({name, regexes, ignore_merges, normalizer});
    }
  };
  add({"gpt-2", "phi-2", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum",
       "exaone4"},
      {kGpt2Regex});
  add({"mpt", "olmo"}, {kGpt2Regex}, false, "NFC");  // both are GPT-NeoX's
  add({"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"},
      {kDigit, kGpt2Regex});
  add({"command-r"}, {kDigit, kGpt2Regex}, false, "NFC");
  add({"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
      {kLlama3Regex}, true);
  add({"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kLlama3Regex});
  add({"qwen2", "deepseek-r1-qwen"}, {kQwen2Regex}, false, "NFC");
  add({"stablelm2", "hunyuan", "megrez", "grok-2", "solar-open"}, {kQwen2Regex});
  add({"qwen35"}, {kQwen35Regex}, false, "NFC");
  add({"seed-coder"}, {kSeedCoderRegex});
  add({"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailingMoeRegex});
  add({"minicpm5"}, {kThreeDigits, kMinicpm5Regex}, true);
  add({"deepseek-v3", "hunyuan-dense"}, {kThreeDigits, kDeepseek3Cjk, kDeepseek3Words});
  add({"deepseek-llm"},
      {"[\r\n]", kDeepseekLlmWords, kDeepseekLlmPunctuation, "\\s+$", kDeepseekCjk, kDigit});
  add({"deepseek-coder"}, {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kDeepseekCjk, kDigit});
  add({"tekken"}, {kTekkenRegex}, true);
  add({"gpt-4o", "llama4", "kanana2", "minimax-m2"}, {kO200kRegex}, true);
  add({"kimi-k2"}, {kKimiRegex});
  add({"falcon"}, {kFalconPunctuation, kGpt2Regex, "[0-9][0-9][0-9]"});
  add({"poro-chat", "bloom", "gpt3-finnish"}, {kBloomRegex});
  add({"viking"}, {kBloomRegex, kDigit});
  std::sort(registry.begin(), registry.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return registry;
}

const std::vector<GgufPreTokenizer>& Registry() {
  static const std::vector<GgufPreTokenizer> registry = MakeRegistry();
  return registry;
}

}  // namespace

const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name) {
  for (const GgufPreTokenizer& known : Registry()) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::string KnownGgufPreTokenizers() {
  return absl::StrJoin(Registry(), ", ", [](std::string* out, const GgufPreTokenizer& known) {
    out->append(known.name);
  });
}

}  // namespace baton::text
