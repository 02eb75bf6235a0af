#include "text/tokenizer/precompiled_normalizer.h"

#include <unicode/brkiter.h>
#include <unicode/locid.h>
#include <unicode/utext.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr std::size_t kMaxClusterBytes = 5;  // longer clusters are taken apart

class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(PrecompiledCharsmap map) : map_(std::move(map)) {}

  std::string Normalize(std::string_view text, bool&) const override {
    std::string out;
    out.reserve(text.size());
    std::size_t begin = 0;
    ForEachClusterEnd(text, [&](std::size_t end) {
      AppendCluster(text.substr(begin, end - begin), out);
      begin = end;
    });
    return out;
  }

 private:
  // What the first entry that begins `key` makes of it.
  std::optional<std::string_view> Find(std::string_view key) const {
    const PrecompiledCharsmap::Match match = map_.ShortestPrefix(key);
    if (match.num_bytes == 0) return std::nullopt;
    return match.replacement;
  }

  void AppendCluster(std::string_view cluster, std::string& out) const {
    if (cluster.size() <= kMaxClusterBytes) {
      if (const auto found = Find(cluster)) {
        out += *found;
        return;
      }
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, ReadUtf8Unit(cluster).num_bytes);
      out += Find(character).value_or(character);
      cluster.remove_prefix(character.size());
    }
  }

  template <class Callback>
  static void ForEachClusterEnd(std::string_view text, Callback callback) {
    UErrorCode error = U_ZERO_ERROR;
    UText utext = UTEXT_INITIALIZER;
    utext_openUTF8(&utext, text.data(), static_cast<std::int64_t>(text.size()), &error);
    const std::unique_ptr<icu::BreakIterator> iterator(
        icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), error));
    if (U_SUCCESS(error)) iterator->setText(&utext, error);
    if (U_SUCCESS(error)) {
      iterator->first();
      for (std::int32_t end = iterator->next(); end != icu::BreakIterator::DONE;
           end = iterator->next()) {
        callback(static_cast<std::size_t>(end));
      }
    } else {
      for (std::size_t at = 0; at < text.size();) callback(at = NextCharacter(text, at));
    }
    utext_close(&utext);
  }

  const PrecompiledCharsmap map_;
};

}  // namespace

std::unique_ptr<Normalizer> MakePrecompiledNormalizer(PrecompiledCharsmap map) {
  return std::make_unique<PrecompiledNormalizer>(std::move(map));
}

absl::StatusOr<PrecompiledCharsmap> CharsmapFromBase64(std::string_view base64) {
  std::string bytes;
  if (!absl::Base64Unescape(absl::string_view(base64.data(), base64.size()), &bytes)) {
    return absl::InvalidArgumentError("damaged: precompiled_charsmap is not base64");
  }
  return PrecompiledCharsmap::Parse(bytes);
}

}  // namespace baton::text
