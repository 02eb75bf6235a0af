#include "text/tokenizer/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include "absl/strings/str_cat.h"

namespace baton::text {
namespace {

class UnicodeNormalizer final : public Normalizer {
 public:
  explicit UnicodeNormalizer(const icu::Normalizer2& form) : form_(form) {}

  std::string Normalize(std::string_view text) const override {
    const icu::StringPiece piece(text.data(), static_cast<std::int32_t>(text.size()));
    UErrorCode error = U_ZERO_ERROR;
    std::string out;
    icu::StringByteSink<std::string> sink(&out, piece.length());
    form_.normalizeUTF8(0, piece, sink, nullptr, error);
    return U_SUCCESS(error) ? out : std::string(text);
  }

 private:
  const icu::Normalizer2& form_;  // a singleton of ICU
};

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> MakeUnicodeNormalizer(std::string_view form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* instance = nullptr;
  if (form == "NFC") instance = icu::Normalizer2::getNFCInstance(error);
  if (form == "NFD") instance = icu::Normalizer2::getNFDInstance(error);
  if (form == "NFKC") instance = icu::Normalizer2::getNFKCInstance(error);
  if (form == "NFKD") instance = icu::Normalizer2::getNFKDInstance(error);
  if (U_FAILURE(error)) return absl::InternalError("ICU has no normalization data");
  if (instance == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("unsupported normalizer: ", absl::string_view(form.data(), form.size())));
  }
  return std::make_unique<UnicodeNormalizer>(*instance);
}

}  // namespace baton::text
