#include "text/utf8.h"

namespace baton::text {
namespace {

// Length of the sequence that `lead` begins, and the range its second byte must lie in (Table 3-7
// of The Unicode Standard); length 0 for a byte that begins none.
struct LeadByte {
  std::size_t num_bytes;
  unsigned char second_low;
  unsigned char second_high;
};

LeadByte ClassifyLead(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit ReadUtf8Unit(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const LeadByte lead = ClassifyLead(byte(0));
  if (lead.num_bytes == 0) return {Utf8Unit::Kind::kIllFormed, 1, 0};
  if (lead.num_bytes == 1) return {Utf8Unit::Kind::kCharacter, 1, byte(0)};
  char32_t code_point = byte(0) & (0x7F >> lead.num_bytes);
  for (std::size_t i = 1; i < lead.num_bytes; ++i) {
    if (i == bytes.size()) return {Utf8Unit::Kind::kIncomplete, i, 0};
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Utf8Unit::Kind::kIllFormed, i, 0};
    code_point = (code_point << 6) | (byte(i) & 0x3F);
  }
  return {Utf8Unit::Kind::kCharacter, lead.num_bytes, code_point};
}

bool IsValidUtf8(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    if (static_cast<unsigned char>(bytes[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Unit unit = ReadUtf8Unit(bytes.substr(at));
    if (unit.kind != Utf8Unit::Kind::kCharacter) return false;
    at += unit.num_bytes;
  }
  return true;
}

std::string ToValidUtf8(std::string_view bytes) {
  Utf8StreamDecoder decoder;
  std::string text = decoder.Append(bytes);
  text += decoder.Finish();
  return text;
}

void AppendUtf8(char32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | (code_point >> 12));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code_point >> 18));
    out += static_cast<char>(0x80 | ((code_point >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

std::size_t CountCodePoints(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::string Utf8StreamDecoder::Append(std::string_view bytes) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined += bytes;
    bytes = joined;
    pending_.clear();
  }
  std::string text;
  text.reserve(bytes.size());
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Unit unit = ReadUtf8Unit(bytes.substr(at));
    switch (unit.kind) {
      case Utf8Unit::Kind::kCharacter:
        text += bytes.substr(at, unit.num_bytes);
        break;
      case Utf8Unit::Kind::kIllFormed:
        text += kReplacementCharacter;
        break;
      case Utf8Unit::Kind::kIncomplete:
        pending_ = bytes.substr(at);
        break;
    }
    at += unit.num_bytes;
  }
  return text;
}

std::string Utf8StreamDecoder::Finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacementCharacter);
}

}  // namespace baton::text
