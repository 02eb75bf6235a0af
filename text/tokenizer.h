#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/text_assets.h"

namespace baton::text {

class Pipeline;  // text/tokenizer/pipeline.h: what a tokenizer is made of

struct EncodeOptions {
  // Adds what the model's post-processor adds around a text (BOS, EOS). A rendered chat template
  // already has its own, so it is encoded without.
  bool add_special_tokens = false;
  // Special tokens spelled out in the text become their ids; off, they are encoded as plain text.
  // Added tokens that are not special are matched either way.
  bool parse_special = true;
};

// Turns text into token ids and back, exactly as the model's own tokenizer does. Immutable and
// thread-safe after Create.
class Tokenizer {
 public:
  // Builds the tokenizer that `assets` describes: a tokenizer.json or a GGUF vocabulary.
  //   kInvalidArgument     damaged: bad JSON, an id twice, a merge of unknown tokens
  //   kFailedPrecondition  well-formed, but uses a part that is not supported; names that part
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const checkpoint::TextAssets& assets);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // O(n log n) in the length of `text` at worst, whatever it holds. `text` should be UTF-8; each
  // ill-formed part of it is read as U+FFFD. Bytes the vocabulary has no token for vanish.
  std::vector<std::int32_t> Encode(std::string_view text, EncodeOptions options = {}) const;

  // The text of `ids` as a whole; bytes that are not UTF-8 become U+FFFD, one for each maximal
  // ill-formed subpart; of byte tokens ("<0x0A>") one for each byte of a run that is not UTF-8 as a
  // whole, as in the reference. Ids outside the vocabulary add nothing.
  std::string Decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;

  // The bytes `id` adds to a decoded text; need not be UTF-8 by themselves. At the front of a text
  // it may be less: SentencePiece's vocabularies lose a space there. Empty for an id outside the
  // vocabulary. Valid as long as the tokenizer lives.
  std::string_view TokenBytes(std::int32_t id) const;

  // TokenBytes made printable (U+FFFD for what is not UTF-8), for log-probabilities.
  std::string TokenText(std::int32_t id) const;

  // True for a token that `skip_special_tokens` leaves out.
  bool IsSpecial(std::int32_t id) const;

  // The id of the token spelled `text`, special or not, looked up by its decoded bytes.
  std::optional<std::int32_t> TokenId(std::string_view text) const;

  // One more than the highest id. The model's logits may have more columns (padding).
  int vocab_size() const;

 private:
  friend class IncrementalDetokenizer;
  explicit Tokenizer(std::unique_ptr<const Pipeline> pipeline);
  bool Exists(std::int32_t id) const;

  const std::unique_ptr<const Pipeline> pipeline_;
};

}  // namespace baton::text
