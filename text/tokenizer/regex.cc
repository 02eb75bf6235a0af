#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton::text {
namespace {

// What \s means to the library that made the reference ids: Unicode's White_Space. PCRE2's own \s
// takes U+180E as well.
constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view kNonSpaces =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";

absl::Status Unsupported(std::string_view pattern, std::size_t offset, std::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrFormat("unsupported regular expression: %s at offset %d of \"%s\"",
                      absl::string_view(what.data(), what.size()), offset,
                      absl::string_view(pattern.data(), pattern.size())));
}

// Rewrites the parts of `pattern` that PCRE2 reads differently, and refuses those it has not.
absl::StatusOr<std::string> ToPcre(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  bool class_is_empty = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\') {
      if (next == 'h' || next == 'H') return Unsupported(pattern, i, "\\h");
      if (next == 's') {
        absl::StrAppend(&out, in_class ? "" : "[", absl::string_view(kSpaces.data()),
                        in_class ? "" : "]");
      } else if (next == 'S') {
        absl::StrAppend(&out, in_class ? "" : "[", absl::string_view(kNonSpaces.data()),
                        in_class ? "" : "]");
      } else {
        out += pattern.substr(i, 2);
      }
      ++i;
      class_is_empty = false;
      continue;
    }
    if (!in_class) {
      in_class = c == '[';
      out += c;
      if (in_class) {
        class_is_empty = true;
        if (next == '^') {
          out += '^';
          ++i;
        }
      }
      continue;
    }
    if (c == '[' && next != ':') return Unsupported(pattern, i, "a class within a class");
    if (c == '&' && next == '&') return Unsupported(pattern, i, "an intersection of classes");
    if (c == '[') {
      const std::size_t end = pattern.find(":]", i);
      if (end == std::string_view::npos) return Unsupported(pattern, i, "[: without :]");
      out += pattern.substr(i, end + 2 - i);
      i = end + 1;
    } else {
      out += c;
      if (c == ']' && !class_is_empty) in_class = false;
    }
    class_is_empty = false;
  }
  return out;
}

// Scratch memory of one thread, shared by all patterns: only the bounds of the whole match are
// kept.
struct Scratch {
  Scratch()
      : match_data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        jit_stack(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr)) {
    pcre2_jit_stack_assign(context, nullptr, jit_stack);
  }
  ~Scratch() {
    pcre2_match_data_free(match_data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(jit_stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  pcre2_match_data* match_data;
  pcre2_match_context* context;
  pcre2_jit_stack* jit_stack;
};

}  // namespace

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  absl::StatusOr<std::string> translated = ToPcre(pattern);
  if (!translated.ok()) return translated.status();
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, nullptr);
  if (code == nullptr) {
    char message[128] = "unknown error";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return Unsupported(*translated, offset, message);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT, matching is slower, not different
  return Regex(
      std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); }));
}

std::optional<Regex::Match> Regex::Find(std::string_view text, std::size_t from) const {
  thread_local Scratch scratch;
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int count = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, scratch.match_data,
                          scratch.context);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
    count = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        scratch.match_data, scratch.context);
  }
  if (count < 0) return std::nullopt;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.match_data);
  return Match{bounds[0], bounds[1]};
}

}  // namespace baton::text
