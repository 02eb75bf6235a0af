#include "text/tokenizer.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "common/status.h"
#include "text/tokenizer/builders.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

// `at_front`: `text` begins where the text given to Encode begins.
void EncodePlain(const Pipeline& pipeline, std::string_view text, bool at_front,
                 std::vector<std::int32_t>& ids) {
  if (text.empty()) return;
  Pieces pieces;
  pieces.views.push_back(text);
  pieces.at_front = at_front;
  for (const auto& step : pipeline.pre_tokenizers) step->Apply(pieces);
  for (const std::string_view word : pieces.views) pipeline.model->Tokenize(word, ids);
}

void EncodeNormalized(const Pipeline& pipeline, std::string_view text, bool at_front,
                      bool parse_special, std::vector<std::int32_t>& ids) {
  if (pipeline.normalized_matcher.empty()) {
    EncodePlain(pipeline, text, at_front, ids);
    return;
  }
  for (const auto& part : pipeline.normalized_matcher.Find(text, parse_special)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      EncodePlain(pipeline, text.substr(part.begin, part.end - part.begin),
                  at_front && part.begin == 0, ids);
    }
  }
}

// Makes the bytes from `begin` on, those of `count` byte tokens in a row, what Hugging Face's
// ByteFallback makes of them: U+FFFD for each byte if they are not UTF-8 as a whole.
void CloseByteRun(std::size_t begin, std::size_t count, std::string& bytes) {
  if (count == 0 || IsValidUtf8(std::string_view(bytes).substr(begin))) return;
  bytes.resize(begin);
  for (std::size_t i = 0; i < count; ++i) bytes += kReplacementCharacter;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const checkpoint::TextAssets& assets) {
  if (assets.tokenizer_json) {
    auto pipeline = BuildFromTokenizerJson(*assets.tokenizer_json);
    if (!pipeline.ok()) return Annotate(pipeline.status(), "tokenizer.json");
    return std::unique_ptr<Tokenizer>(new Tokenizer(*std::move(pipeline)));
  }
  if (assets.gguf) {
    auto pipeline = BuildFromGguf(*assets.gguf, assets);
    if (!pipeline.ok()) return Annotate(pipeline.status(), "GGUF vocabulary");
    return std::unique_ptr<Tokenizer>(new Tokenizer(*std::move(pipeline)));
  }
  return absl::InvalidArgumentError("the model has no tokenizer: no tokenizer.json and no GGUF");
}

std::vector<std::int32_t> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  const Pipeline& pipeline = *pipeline_;
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = ToValidUtf8(text);
    text = repaired;
  }
  std::vector<std::int32_t> ids;
  if (options.add_special_tokens) ids = pipeline.prefix_ids;
  for (const auto& part : pipeline.raw_matcher.Find(text, options.parse_special)) {
    const std::string_view piece = text.substr(part.begin, part.end - part.begin);
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    bool at_front = part.begin == 0;
    if (pipeline.normalizers.empty()) {
      EncodeNormalized(pipeline, piece, at_front, options.parse_special, ids);
    } else {
      const std::string normalized = pipeline.Normalize(piece, at_front);
      EncodeNormalized(pipeline, normalized, at_front, options.parse_special, ids);
    }
  }
  if (options.add_special_tokens) {
    ids.insert(ids.end(), pipeline.suffix_ids.begin(), pipeline.suffix_ids.end());
  }
  return ids;
}

std::string Tokenizer::Decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  bool is_first = true;
  std::size_t run_begin = 0;
  std::size_t run_count = 0;  // byte tokens in a row, up to here
  for (const std::int32_t id : ids) {
    if (!Exists(id) || (skip_special_tokens && IsSpecial(id))) continue;
    if (pipeline_->tokens[id].is_byte) {
      if (run_count++ == 0) run_begin = bytes.size();
    } else {
      CloseByteRun(run_begin, std::exchange(run_count, 0), bytes);
    }
    bytes += pipeline_->BytesOf(id, std::exchange(is_first, false));
  }
  CloseByteRun(run_begin, run_count, bytes);
  std::string text = IsValidUtf8(bytes) ? std::move(bytes) : ToValidUtf8(bytes);
  return TextStripper(pipeline_->strip, /*at_front=*/true).Append(std::move(text));
}

bool Tokenizer::Exists(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && pipeline_->tokens[id].exists;
}

std::string_view Tokenizer::TokenBytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return pipeline_->tokens[id].bytes;
}

std::string Tokenizer::TokenText(std::int32_t id) const { return ToValidUtf8(TokenBytes(id)); }

bool Tokenizer::IsSpecial(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && pipeline_->tokens[id].special;
}

std::optional<std::int32_t> Tokenizer::TokenId(std::string_view text) const {
  const auto it = pipeline_->id_by_bytes.find(absl::string_view(text.data(), text.size()));
  if (it == pipeline_->id_by_bytes.end()) return std::nullopt;
  return it->second;
}

int Tokenizer::vocab_size() const { return static_cast<int>(pipeline_->tokens.size()); }

}  // namespace baton::text
