#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace baton::checkpoint {

// GGUF token types (tokenizer.ggml.token_type).
enum class TokenType : std::uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// A vocabulary as GGUF carries it.
struct GgufVocabulary {
  std::string model;  // tokenizer.ggml.model: "gpt2", "llama", "t5", ...
  std::string pre;    // tokenizer.ggml.pre: "smollm", ...; empty when absent
  std::vector<std::string> tokens;
  std::vector<TokenType> types;     // same length as tokens
  std::vector<float> scores;        // same length, or empty
  std::vector<std::string> merges;  // "a b"
  std::optional<std::int32_t> eos_id;
  std::optional<std::int32_t> unk_id;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  bool remove_extra_whitespaces = false;
  std::string precompiled_charsmap;  // of SentencePiece; empty when absent
  // Special tokens take the white space behind them along. No key says so; llama.cpp and this
  // program know it from the model's name (Phi-3).
  bool special_tokens_strip_right = false;
};

// Everything text/ needs to turn strings into ids and back, and messages into a prompt. At most one
// of `tokenizer_json` and `gguf` is set; neither when the model comes without a tokenizer, which
// suffices where only token ids are handled.
struct TextAssets {
  std::optional<std::string> tokenizer_json;  // the text of tokenizer.json
  std::optional<GgufVocabulary> gguf;
  // Jinja source of the template for plain chats, and further ones by name ("tool_use", "rag") of a
  // model that has several. Such a model may lack the first.
  std::optional<std::string> chat_template;
  std::map<std::string, std::string> named_chat_templates;
  // Special tokens by role as the template sees them: "bos_token", "eos_token", "unk_token",
  // "pad_token", ... -> text.
  std::map<std::string, std::string> special_tokens;
  std::optional<std::int32_t> bos_id;
  // Every id that the model's files declare to end an output, ascending, without repeats: eos, eot
  // and eom ids of a GGUF, those of generation_config.json and config.json. Only when a GGUF
  // declares none are its control tokens searched for the usual texts ("<|im_end|>", ...).
  std::vector<std::int32_t> eos_ids;
  // Sampling defaults of generation_config.json, by its own names ("temperature", "top_p", ...).
  std::map<std::string, double> generation_defaults;
};

}  // namespace baton::checkpoint
