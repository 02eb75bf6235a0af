#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer/pattern.h"

namespace baton::text {

// A step that rewrites text before it is split into words. Immutable and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `text` is valid UTF-8. Sets `keeps_front` to false, and never to true, when what comes out no
  // longer begins with what stood at the front of `text`.
  virtual std::string Normalize(std::string_view text, bool& keeps_front) const = 0;
};

// One of Unicode's normalization forms, by ICU: "NFC", "NFD", "NFKC" or "NFKD".
//   kFailedPrecondition  another name
absl::StatusOr<std::unique_ptr<Normalizer>> MakeUnicodeNormalizer(std::string_view form);

// Puts `content` for each match.
std::unique_ptr<Normalizer> MakeReplace(std::unique_ptr<Pattern> pattern, std::string content);

// Puts `prefix` before a text that is not empty.
std::unique_ptr<Normalizer> MakePrepend(std::string prefix);

// Takes white space away at the ends.
std::unique_ptr<Normalizer> MakeStrip(bool left, bool right);

// Each character's lower case, whatever stands around it.
std::unique_ptr<Normalizer> MakeLowercase();

// Takes combining marks away. Letters with an accent of their own stay: NFD comes before.
std::unique_ptr<Normalizer> MakeStripAccents();

// SentencePiece's "nmt": control characters vanish, other white space becomes a space.
std::unique_ptr<Normalizer> MakeNmt();

// Spells the bytes in the alphabet of byte_level.h.
std::unique_ptr<Normalizer> MakeByteAlphabetNormalizer();

}  // namespace baton::text
