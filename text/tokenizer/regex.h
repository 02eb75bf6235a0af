#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer/word_scanner.h"

namespace baton::text {

// A pre-tokenizer's regular expression, in the syntax of Hugging Face's tokenizers (Oniguruma): a
// scanner of word_scanner.h where there is one, else compiled with PCRE2's JIT. Immutable and
// thread-safe.
class Regex {
 public:
  struct Match {
    std::size_t begin = 0;  // byte offsets
    std::size_t end = 0;
  };

  // kFailedPrecondition for a pattern PCRE2 cannot run with the same meaning; says where.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);
  // Without a scanner, for tests of those.
  static absl::StatusOr<Regex> CompileForPcre(std::string_view pattern);

  // The first match at or after byte `from`. `text` must be valid UTF-8. A match that exceeds
  // PCRE2's limits counts as none.
  std::optional<Match> Find(std::string_view text, std::size_t from) const;

 private:
  explicit Regex(std::shared_ptr<void> code) : code_(std::move(code)) {}
  explicit Regex(WordScanner scanner) : scanner_(scanner) {}

  WordScanner scanner_ = nullptr;
  std::shared_ptr<void> code_;  // a pcre2_code, unless there is a scanner
};

}  // namespace baton::text
