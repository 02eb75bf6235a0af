#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status.h"
#include "text/tokenizer/regex_syntax.h"

namespace baton::text {
namespace {

// The end of patience: some seconds, and memory for a few million nested steps.
constexpr std::uint32_t kMostSteps = 200'000'000;
constexpr std::uint32_t kMostHeapKib = 512 << 10;

// Scratch memory of one thread, shared by all patterns: only the bounds of the whole match are
// kept.
struct Scratch {
  Scratch()
      : match_data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        patient_context(pcre2_match_context_create(nullptr)),
        jit_stack(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr)) {
    pcre2_jit_stack_assign(context, nullptr, jit_stack);
    pcre2_set_match_limit(patient_context, kMostSteps);
    pcre2_set_heap_limit(patient_context, kMostHeapKib);
  }
  ~Scratch() {
    pcre2_match_data_free(match_data);
    pcre2_match_context_free(context);
    pcre2_match_context_free(patient_context);
    pcre2_jit_stack_free(jit_stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  pcre2_match_data* match_data;
  pcre2_match_context* context;
  pcre2_match_context* patient_context;  // for what goes beyond the usual limits
  pcre2_jit_stack* jit_stack;
};

}  // namespace

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  const WordScanner scanner = FindWordScanner(pattern);
  return scanner == nullptr ? CompileForPcre(pattern) : Regex(scanner);
}

absl::StatusOr<Regex> Regex::CompileForPcre(std::string_view pattern) {
  BATON_ASSIGN_OR_RETURN(const std::string translated, OnigurumaToPcre(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, nullptr);
  if (code == nullptr) {
    char message[128] = "unknown error";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return absl::FailedPreconditionError(absl::StrFormat(
        "unsupported regular expression: %s at offset %d of \"%s\"", message, offset, translated));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT, matching is slower, not different
  return Regex(
      std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); }));
}

std::optional<Regex::Match> Regex::Find(std::string_view text, std::size_t from) const {
  if (scanner_ != nullptr) {
    while (from < text.size()) {
      const std::size_t end = scanner_(text, from);
      if (end > from) return Match{from, end};
      do {
        ++from;
      } while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80);
    }
    return std::nullopt;
  }
  thread_local Scratch scratch;
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int count = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, scratch.match_data,
                          scratch.context);
  if (count < 0 && count != PCRE2_ERROR_NOMATCH) {
    count = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        scratch.match_data, scratch.patient_context);
  }
  if (count < 0 && count != PCRE2_ERROR_NOMATCH) {
    log::Error(
        "a tokenizer's expression is beyond its limits: this text is cut as if it did not match",
        {{"pcre2_error", count}, {"offset", from}, {"bytes", text.size()}});
  }
  if (count < 0) return std::nullopt;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.match_data);
  return Match{bounds[0], bounds[1]};
}

}  // namespace baton::text
