#include "text/tokenizer/precompiled_normalizer.h"

#include <unicode/brkiter.h>
#include <unicode/locid.h>
#include <unicode/utext.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr std::size_t kMaxClusterBytes = 5;  // longer clusters are taken apart

std::uint32_t ReadLittleEndian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

// A unit of the double array, as the Darts-clone library lays it out.
class Unit {
 public:
  explicit Unit(std::uint32_t bits) : bits_(bits) {}
  bool has_leaf() const { return (bits_ >> 8 & 1) != 0; }
  std::uint32_t value() const { return bits_ & 0x7FFFFFFF; }
  std::uint32_t label() const { return bits_ & 0x800000FF; }
  std::uint32_t offset() const { return bits_ >> 10 << ((bits_ & 0x200) >> 6); }

 private:
  std::uint32_t bits_;
};

class PrecompiledNormalizer final : public Normalizer {
 public:
  PrecompiledNormalizer(std::vector<Unit> units, std::string replacements)
      : units_(std::move(units)), replacements_(std::move(replacements)) {}

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
  // What the first entry that begins `key` is rewritten to.
  std::optional<std::string_view> Find(std::string_view key) const {
    if (units_.empty()) return std::nullopt;
    std::size_t node = units_[0].offset();
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      node ^= byte;
      if (byte == 0 || node >= units_.size() || units_[node].label() != byte) return std::nullopt;
      const Unit unit = units_[node];
      node ^= unit.offset();
      if (!unit.has_leaf()) continue;
      if (node >= units_.size() || units_[node].value() > replacements_.size()) return std::nullopt;
      const std::string_view rest = std::string_view(replacements_).substr(units_[node].value());
      if (!rest.empty() && (static_cast<unsigned char>(rest[0]) & 0xC0) == 0x80) {
        return std::nullopt;  // points into a character: damaged
      }
      return rest.substr(0, rest.find('\0'));
    }
    return std::nullopt;
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

  const std::vector<Unit> units_;
  const std::string replacements_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> MakePrecompiledNormalizer(std::string_view base64) {
  std::string bytes;
  if (!absl::Base64Unescape(absl::string_view(base64.data(), base64.size()), &bytes)) {
    return absl::InvalidArgumentError("damaged: precompiled_charsmap is not base64");
  }
  std::string_view rest = bytes;
  if (rest.size() < 4 || ReadLittleEndian(rest) > rest.size() - 4) {
    return absl::InvalidArgumentError("damaged: precompiled_charsmap is shorter than it says");
  }
  const std::size_t num_units = ReadLittleEndian(rest) / 4;
  rest.remove_prefix(4);
  std::vector<Unit> units;
  units.reserve(num_units);
  for (std::size_t i = 0; i < num_units; ++i)
    units.emplace_back(ReadLittleEndian(rest.substr(4 * i)));
  std::string replacements(rest.substr(4 * num_units));
  if (!IsValidUtf8(replacements)) {
    return absl::InvalidArgumentError("damaged: precompiled_charsmap is not UTF-8");
  }
  return std::make_unique<PrecompiledNormalizer>(std::move(units), std::move(replacements));
}

}  // namespace baton::text
