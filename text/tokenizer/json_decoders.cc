#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/tokenizer_json.h"

namespace baton::text {
namespace {

constexpr std::string_view kSupported =
    "ByteLevel, Replace, Metaspace, Strip, ByteFallback, Fuse, Sequence";

// A decoder has steps that look at one token each, then maybe ByteFallback, then maybe ByteLevel or
// Fuse, which join the tokens, then maybe a Strip of the whole text. Other orders would need the
// whole text where a stream has only its tokens so far.
enum class Stage { kTokens, kBytes, kText, kEnd };

absl::StatusOr<TextStrip> ReadStrip(JsonPart step) {
  constexpr std::int64_t kMost = 1 << 20;
  TextStrip strip;
  BATON_ASSIGN_OR_RETURN(strip.character, CharacterMember(step, "content"));
  BATON_ASSIGN_OR_RETURN(const std::int64_t front, IntMember(step, "start"));
  BATON_ASSIGN_OR_RETURN(const std::int64_t back, IntMember(step, "stop"));
  if (front < 0 || back < 0 || front > kMost || back > kMost) {
    return Damaged(absl::StrCat("Strip of ", front, " and ", back, " characters"));
  }
  strip.max_front = static_cast<int>(front);
  strip.max_back = static_cast<int>(back);
  return strip;
}

absl::StatusOr<std::unique_ptr<TokenDecoder::Step>> ReadMetaspace(JsonPart step) {
  BATON_ASSIGN_OR_RETURN(std::string replacement, CharacterMember(step, "replacement"));
  BATON_ASSIGN_OR_RETURN(const std::string scheme, StringMember(step, "prepend_scheme", "always"));
  return MakeDecoderMetaspace(std::move(replacement), scheme != "never");
}

absl::StatusOr<std::unique_ptr<TokenDecoder::Step>> ReadReplace(JsonPart step) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Pattern> pattern, ReadPattern(step));
  BATON_ASSIGN_OR_RETURN(std::string content, StringMember(step, "content"));
  return MakeDecoderReplace(std::move(pattern), std::move(content));
}

// Reads one step and returns the stage after it.
absl::StatusOr<Stage> ReadStep(JsonPart step, Stage stage, TokenDecoder& tokens, TextStrip& strip) {
  const std::string type = TypeOf(step);
  const bool is_token_step = type == "Replace" || type == "Metaspace" || type == "Strip";
  if (is_token_step && stage == Stage::kTokens) {
    if (type == "Strip") {
      BATON_ASSIGN_OR_RETURN(TextStrip each, ReadStrip(step));
      tokens.Add(MakeDecoderStrip(std::move(each)));
    } else {
      BATON_ASSIGN_OR_RETURN(auto made,
                             type == "Replace" ? ReadReplace(step) : ReadMetaspace(step));
      tokens.Add(std::move(made));
    }
    return stage;
  }
  if (type == "ByteFallback" && stage == Stage::kTokens) {
    tokens.set_byte_fallback();
    return Stage::kBytes;
  }
  if (type == "ByteLevel" && stage == Stage::kTokens) {
    tokens.set_byte_level();
    return Stage::kText;
  }
  if (type == "Fuse" && stage != Stage::kEnd) return Stage::kText;
  if (type == "Strip" && stage == Stage::kText) {
    BATON_ASSIGN_OR_RETURN(strip, ReadStrip(step));
    return Stage::kEnd;
  }
  if (is_token_step || type == "ByteFallback" || type == "ByteLevel" || type == "Fuse") {
    return Unsupported("order of decoder steps", absl::StrCat(type, " at that place"),
                       "Replace, Metaspace and Strip first, then ByteFallback, then ByteLevel or "
                       "Fuse, then one Strip");
  }
  return Unsupported("decoder", type, kSupported);
}

}  // namespace

absl::Status ReadDecoder(JsonPart root, TokenDecoder& tokens, TextStrip& strip) {
  if (!Member(root, "decoder")) return Unsupported("decoder", "none", kSupported);
  BATON_ASSIGN_OR_RETURN(const std::vector<JsonPart> steps, StepsOf(root, "decoder", "decoders"));
  Stage stage = Stage::kTokens;
  double growth = 1.0;
  for (const JsonPart step : steps) {
    if (TypeOf(step) == "Replace") {
      BATON_ASSIGN_OR_RETURN(const double factor, GrowthOfReplace(step));
      growth *= factor;
    }
    if (growth > kMaxGrowth) {
      return Unsupported("decoder", absl::StrCat("a token may become ", growth, " times as long"),
                         absl::StrCat("those that make it up to ", kMaxGrowth, " times as long"));
    }
    BATON_ASSIGN_OR_RETURN(stage, ReadStep(step, stage, tokens, strip));
  }
  return absl::OkStatus();
}

}  // namespace baton::text
