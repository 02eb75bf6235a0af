#pragma once
#include <string>
#include <string_view>

#include "common/check.h"
#include "text/incremental_detokenizer.h"
#include "text/jinja/program.h"
#include "text/jinja/value.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton::text {

// What the fuzzers do with an input, shared with the test that replays their finds.

inline void RunJinjaInput(std::string_view source) {
  const auto program = jinja::Program::Compile(source);
  if (!program.ok()) return;
  const auto variables = jinja::ParseJson(
      R"({"messages": [{"role": "user", "content": "Hi \u00e9"}, {"role": "assistant",
          "content": [{"type": "text", "text": "x"}], "n": [1, 2.5, true, null]}],
          "tools": [{"name": "f", "parameters": {"a": {"b": []}}}], "x": "y", "n": 3})");
  BATON_CHECK(variables.ok(), "the fuzzer's own variables are not JSON");
  std::map<std::string, jinja::Value> by_name;
  for (const auto& [key, value] : variables->dict().items()) by_name[key.str()] = value;
  jinja::Limits limits;
  limits.max_steps = 100'000;
  limits.max_memory_bytes = std::size_t{8} << 20;
  limits.max_output_bytes = std::size_t{1} << 20;
  const auto text =
      (*program)->Run(by_name, absl::FromUnixSeconds(1'736'933'400), absl::UTCTimeZone(), limits);
  if (!text.ok()) return;
  BATON_CHECK(text->size() <= limits.max_output_bytes, "output beyond its limit");
  BATON_CHECK(IsValidUtf8(*text), "output is not UTF-8");
}

inline void RunTokenizerJsonInput(std::string_view json) {
  checkpoint::TextAssets assets;
  assets.tokenizer_json = std::string(json);
  const auto tokenizer = Tokenizer::Create(assets);
  if (!tokenizer.ok()) return;
  for (const std::string_view text :
       {"", "Hello, world 123", "  a\n\nb\t c  ", "\u4f60\u597d \U0001F600",
        "aaaaaaaaaaaaaaaaaaaaaaaa", "<|end|> <|x|>", "\xff\xfe bad"}) {
    for (const bool special : {false, true}) {
      const auto ids =
          (*tokenizer)->Encode(text, {.add_special_tokens = special, .parse_special = special});
      for (const std::int32_t id : ids) (*tokenizer)->TokenBytes(id);
      BATON_CHECK(IsValidUtf8((*tokenizer)->Decode(ids, special)), "decoded text is not UTF-8");
      IncrementalDetokenizer stream(**tokenizer, special);
      for (const std::int32_t id : ids) {
        BATON_CHECK(IsValidUtf8(stream.Append(id)), "a stream's text is not UTF-8");
      }
      BATON_CHECK(IsValidUtf8(stream.Finish()), "a stream's end is not UTF-8");
    }
  }
}

}  // namespace baton::text
