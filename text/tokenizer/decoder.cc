#include "text/tokenizer/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/tokenizer/byte_level.h"

namespace baton::text {
namespace {

class ReplaceStep final : public TokenDecoder::Step {
 public:
  ReplaceStep(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::string Apply(std::string_view token, bool) const override {
    std::string out;
    ForEachPart(*pattern_, token, [&](std::size_t begin, std::size_t end, bool is_match) {
      out += is_match ? std::string_view(content_) : token.substr(begin, end - begin);
    });
    return out;
  }
  bool DependsOnPlace() const override { return false; }

 private:
  const std::unique_ptr<Pattern> pattern_;
  const std::string content_;
};

class MetaspaceStep final : public TokenDecoder::Step {
 public:
  MetaspaceStep(std::string replacement, bool drops_first)
      : pattern_(MakeLiteralPattern(std::move(replacement))), drops_first_(drops_first) {}

  std::string Apply(std::string_view token, bool is_first) const override {
    std::string out;
    ForEachPart(*pattern_, token, [&](std::size_t begin, std::size_t end, bool is_match) {
      if (!is_match) {
        out += token.substr(begin, end - begin);
      } else if (!(is_first && drops_first_)) {
        out += ' ';
      }
    });
    return out;
  }
  bool DependsOnPlace() const override { return drops_first_; }

 private:
  const std::unique_ptr<Pattern> pattern_;
  const bool drops_first_;
};

std::size_t CountAtBack(std::string_view text, std::string_view character, std::size_t limit) {
  std::size_t count = 0;
  while (count < limit && text.ends_with(character)) {
    text.remove_suffix(character.size());
    ++count;
  }
  return count;
}

class StripStep final : public TokenDecoder::Step {
 public:
  explicit StripStep(TextStrip strip) : strip_(std::move(strip)) {}

  std::string Apply(std::string_view token, bool) const override {
    return TextStripper(strip_, /*at_front=*/true).Append(std::string(token));
  }
  bool DependsOnPlace() const override { return false; }

 private:
  const TextStrip strip_;
};

std::optional<char> ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

}  // namespace

bool TokenDecoder::DependsOnPlace() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const auto& step) { return step->DependsOnPlace(); });
}

DecodedToken TokenDecoder::Decode(std::string_view token, bool is_first) const {
  std::string text(token);
  for (const auto& step : steps_) text = step->Apply(text, is_first);
  if (byte_fallback_) {
    if (const std::optional<char> byte = ByteOf(text)) return {std::string(1, *byte), true};
  }
  if (byte_level_) {
    if (std::optional<std::string> bytes = BytesFromAlphabet(text)) return {*std::move(bytes)};
  }
  return {std::move(text)};
}

std::unique_ptr<TokenDecoder::Step> MakeDecoderReplace(std::unique_ptr<Pattern> pattern,
                                                       std::string content) {
  return std::make_unique<ReplaceStep>(std::move(pattern), std::move(content));
}
std::unique_ptr<TokenDecoder::Step> MakeDecoderMetaspace(std::string replacement,
                                                         bool drops_first) {
  return std::make_unique<MetaspaceStep>(std::move(replacement), drops_first);
}
std::unique_ptr<TokenDecoder::Step> MakeDecoderStrip(TextStrip strip) {
  return std::make_unique<StripStep>(std::move(strip));
}

std::string TextStripper::Append(std::string text) {
  if (strip_.character.empty() || text.empty()) return text;
  std::size_t begin = 0;
  while (left_at_front_ > 0 && begin < text.size()) {
    if (std::string_view(text).substr(begin).starts_with(strip_.character)) {
      begin += strip_.character.size();
      --left_at_front_;
    } else {
      left_at_front_ = 0;
    }
  }
  std::string out;
  for (; held_ > 0; --held_) out += strip_.character;
  out.append(text, begin);
  held_ = CountAtBack(out, strip_.character, static_cast<std::size_t>(strip_.max_back));
  out.resize(out.size() - held_ * strip_.character.size());
  return out;
}

}  // namespace baton::text
