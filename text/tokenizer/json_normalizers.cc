#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/precompiled_normalizer.h"
#include "text/tokenizer/tokenizer_json.h"

namespace baton::text {
namespace {

constexpr std::string_view kSupported =
    "NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, Lowercase, StripAccents, Nmt, Precompiled, "
    "ByteLevel, Sequence";

absl::StatusOr<PrecompiledCharsmap> ReadCharsmap(JsonPart step) {
  BATON_ASSIGN_OR_RETURN(const std::string base64, StringMember(step, "precompiled_charsmap"));
  return CharsmapFromBase64(base64);
}

absl::StatusOr<std::unique_ptr<Normalizer>> ReadNormalizer(JsonPart step) {
  const std::string type = TypeOf(step);
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    return MakeUnicodeNormalizer(type);
  }
  if (type == "Replace") {
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<Pattern> pattern, ReadPattern(step));
    BATON_ASSIGN_OR_RETURN(std::string content, StringMember(step, "content"));
    return MakeReplace(std::move(pattern), std::move(content));
  }
  if (type == "Prepend") {
    BATON_ASSIGN_OR_RETURN(std::string prefix, StringMember(step, "prepend"));
    return MakePrepend(std::move(prefix));
  }
  if (type == "Strip") {
    BATON_ASSIGN_OR_RETURN(const bool left, BoolMember(step, "strip_left", false));
    BATON_ASSIGN_OR_RETURN(const bool right, BoolMember(step, "strip_right", false));
    return MakeStrip(left, right);
  }
  if (type == "Lowercase") return MakeLowercase();
  if (type == "StripAccents") return MakeStripAccents();
  if (type == "Nmt") return MakeNmt();
  if (type == "Precompiled") {
    BATON_ASSIGN_OR_RETURN(PrecompiledCharsmap map, ReadCharsmap(step));
    return MakePrecompiledNormalizer(std::move(map));
  }
  if (type == "ByteLevel") return MakeByteAlphabetNormalizer();
  return Unsupported("normalizer", type, kSupported);
}

// How many times longer a step may make a text, in bytes. What a Prepend adds is as long as in the
// file.
absl::StatusOr<double> GrowthOf(JsonPart step) {
  const std::string type = TypeOf(step);
  if (type == "Replace") return GrowthOfReplace(step);
  if (type == "Precompiled") {
    BATON_ASSIGN_OR_RETURN(const PrecompiledCharsmap map, ReadCharsmap(step));
    return static_cast<double>(std::max<std::size_t>(1, map.longest_replacement()));
  }
  if (type == "NFKC" || type == "NFKD") return 11.0;  // U+FDFA
  if (type == "NFC" || type == "NFD") return 3.0;
  if (type == "ByteLevel") return 2.0;
  if (type == "Lowercase") return 1.5;
  return 1.0;
}

}  // namespace

absl::StatusOr<double> GrowthOfReplace(JsonPart part) {
  BATON_ASSIGN_OR_RETURN(const std::string content, StringMember(part, "content", ""));
  const std::optional<JsonPart> pattern = Member(part, "pattern");
  std::string literal;
  if (pattern) {
    BATON_ASSIGN_OR_RETURN(literal, StringMember(*pattern, "String", ""));
  }
  const auto size = static_cast<double>(content.size());
  if (literal.empty()) return size + 1;  // may match between any two characters
  return std::max(1.0, size / static_cast<double>(literal.size()));
}

absl::Status AddNormalizers(JsonPart root, Pipeline& pipeline) {
  BATON_ASSIGN_OR_RETURN(const std::vector<JsonPart> steps,
                         StepsOf(root, "normalizer", "normalizers"));
  double growth = 1.0;
  for (const JsonPart step : steps) {
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<Normalizer> normalizer, ReadNormalizer(step));
    BATON_ASSIGN_OR_RETURN(const double factor, GrowthOf(step));
    growth *= factor;
    if (growth > kMaxGrowth) {
      return Unsupported("normalizers",
                         absl::StrCat("a text may become ", growth, " times as long"),
                         absl::StrCat("those that make it up to ", kMaxGrowth, " times as long"));
    }
    pipeline.normalizers.push_back(std::move(normalizer));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Pattern>> ReadPattern(JsonPart part) {
  const std::optional<JsonPart> pattern = Member(part, "pattern");
  if (!pattern) return Damaged(absl::StrCat(TypeOf(part), " without a pattern"));
  if (Member(*pattern, "String")) {
    BATON_ASSIGN_OR_RETURN(std::string literal, StringMember(*pattern, "String"));
    return MakeLiteralPattern(std::move(literal));
  }
  if (!Member(*pattern, "Regex")) {
    return Damaged(absl::StrCat(TypeOf(part), ": its pattern has neither String nor Regex"));
  }
  BATON_ASSIGN_OR_RETURN(const std::string source, StringMember(*pattern, "Regex"));
  BATON_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(source));
  return MakeRegexPattern(std::move(regex));
}

}  // namespace baton::text
