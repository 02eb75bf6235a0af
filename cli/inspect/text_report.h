#pragma once
#include <string>

#include "absl/status/status.h"
#include "checkpoint/text_assets.h"
#include "router/served_model.h"

namespace baton::cli {

// "GGUF gpt2, pre-tokenizer smollm" or "tokenizer.json: BPE, NFC, Split + ByteLevel, ...": what the
// files say the tokenizer is made of.
std::string TokenizerKind(const checkpoint::TextAssets& assets);

// Tokenizer, special tokens, ends of an output, chat template and sampling defaults.
void PrintText(const checkpoint::TextAssets& assets, const router::ServedModel& model);

// One line per token of `text`: id, spelling, and whether it is special.
void PrintTokens(const router::ServedModel& model, const std::string& text);

// Renders the chat request in `path` as the server would and prints the prompt. The file holds a
// request body ({"messages": [...], "tools": [...], ...}) or only the list of messages.
//   kNotFound         the file cannot be read
//   kInvalidArgument  it is no such JSON, or the template refuses it
absl::Status PrintRendered(const router::ServedModel& model, const std::string& path);

}  // namespace baton::cli
