#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::text {

// A step that rewrites text before it is split into words. Immutable and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `text` is valid UTF-8.
  virtual std::string Normalize(std::string_view text) const = 0;
};

// One of Unicode's normalization forms, by ICU: "NFC", "NFD", "NFKC" or "NFKD".
//   kFailedPrecondition  another name
absl::StatusOr<std::unique_ptr<Normalizer>> MakeUnicodeNormalizer(std::string_view form);

}  // namespace baton::text
