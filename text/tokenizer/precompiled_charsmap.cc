#include "text/tokenizer/precompiled_charsmap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

std::uint32_t ReadLittleEndian(std::string_view four_bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) {
    value = (value << 8) | static_cast<unsigned char>(four_bytes[static_cast<std::size_t>(i)]);
  }
  return value;
}

// The fields of a unit of darts-clone's double array.
bool HasLeaf(std::uint32_t unit) { return ((unit >> 8) & 1u) != 0; }
std::uint32_t Value(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }
std::uint32_t Label(std::uint32_t unit) { return unit & 0x800000FFu; }
std::uint32_t Offset(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("damaged precompiled_charsmap: ", what));
}

}  // namespace

absl::StatusOr<PrecompiledCharsmap> PrecompiledCharsmap::Parse(std::string_view blob) {
  if (blob.size() < 4) return Damaged(absl::StrCat(blob.size(), " bytes, too few for its size"));
  const std::size_t num_bytes = ReadLittleEndian(blob.substr(0, 4));
  blob.remove_prefix(4);
  if (num_bytes == 0 || num_bytes % 4 != 0 || num_bytes >= blob.size()) {
    return Damaged(absl::StrCat("a table of ", num_bytes, " bytes in ", blob.size()));
  }
  PrecompiledCharsmap map;
  map.units_.reserve(num_bytes / 4);
  for (std::size_t at = 0; at < num_bytes; at += 4) {
    map.units_.push_back(ReadLittleEndian(blob.substr(at, 4)));
  }
  map.replacements_ = std::string(blob.substr(num_bytes));
  if (map.replacements_.back() != '\0') return Damaged("the last replacement has no end");
  if (!IsValidUtf8(map.replacements_)) return Damaged("a replacement is not valid UTF-8");
  return map;
}

std::size_t PrecompiledCharsmap::longest_replacement() const {
  std::size_t longest = 0;
  for (std::size_t begin = 0; begin < replacements_.size();) {
    const std::size_t end = replacements_.find('\0', begin);
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  return longest;
}

PrecompiledCharsmap::Match PrecompiledCharsmap::Prefix(std::string_view text, bool longest) const {
  Match found;
  std::size_t at = Offset(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint32_t byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || Label(units_[at]) != byte) break;
    const bool has_leaf = HasLeaf(units_[at]);
    at ^= Offset(units_[at]);
    if (at >= units_.size()) break;
    if (!has_leaf) continue;
    const std::size_t begin = Value(units_[at]);
    const bool is_entry =
        begin < replacements_.size() && (begin == 0 || replacements_[begin - 1] == '\0');
    // A prefix of a character is no entry: what remains would not be UTF-8.
    const bool is_whole =
        i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xC0) != 0x80;
    if (is_entry && is_whole) {
      found = {i + 1, replacements_.c_str() + begin};
      if (!longest) break;
    }
  }
  return found;
}

}  // namespace baton::text
