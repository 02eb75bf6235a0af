#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::text {

// A pre-tokenizer's regular expression, in the syntax of Hugging Face's tokenizers (Oniguruma),
// compiled with PCRE2's JIT. Immutable and thread-safe.
class Regex {
 public:
  struct Match {
    std::size_t begin = 0;  // byte offsets
    std::size_t end = 0;
  };

  // kFailedPrecondition for a pattern PCRE2 cannot run with the same meaning; says where.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);

  // The first match at or after byte `from`. `text` must be valid UTF-8. A match that exceeds
  // PCRE2's limits counts as none.
  std::optional<Match> Find(std::string_view text, std::size_t from) const;

 private:
  explicit Regex(std::shared_ptr<void> code) : code_(std::move(code)) {}

  std::shared_ptr<void> code_;  // a pcre2_code
};

}  // namespace baton::text
