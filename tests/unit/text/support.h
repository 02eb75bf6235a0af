#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/text_assets.h"
#include "nlohmann/json.hpp"
#include "text/tokenizer.h"

namespace baton::text::testing {

// Keeps the order of keys, as the templates see it.
using Json = nlohmann::ordered_json;

// A file of the golden data.
std::string GoldenPath(std::string_view name);

// The lines of a golden JSON-lines file. Fails the test when there are none.
std::vector<Json> ReadGolden(std::string_view name);

std::string ReadFile(const std::string& path);

// The tokenizer of models/tiny/target.
const Tokenizer& TinyTokenizer();
const checkpoint::TextAssets& TinyAssets();

// The text assets of SmolLM2-135M-Instruct as GGUF, from $BATON_SMOLLM2 or the cache folder.
// nullptr when the file is not there: the test has then failed, or was skipped if
// $BATON_NO_DOWNLOAD is set.
const checkpoint::TextAssets* SmolLm2Assets();
const Tokenizer* SmolLm2Tokenizer();

// How many times as long four times the text takes to encode and decode, where the text is `unit`
// again and again: little more than 4, but 16 where time is quadratic. Processor time, and the best
// of some tries, since others use the machine too.
double TimeOfFourfoldText(const Tokenizer& tokenizer, std::string_view unit);

// "line N: text" for SCOPED_TRACE, shortened.
std::string Describe(std::size_t line, std::string_view text);

}  // namespace baton::text::testing
