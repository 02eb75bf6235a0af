#include "text/jinja/python_format.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/error.h"
#include "text/jinja/object.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

class ReprWriter {
 public:
  explicit ReprWriter(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  void Write(const Value& value) {
    if (out_.size() > max_bytes_) {
      throw Error(ErrorKind::kLimit, "a value is too large to print");
    }
    switch (value.kind()) {
      case Value::Kind::kString:
        out_ += StringRepr(value.str());
        break;
      case Value::Kind::kSequence:
        WriteSequence(value.sequence());
        break;
      case Value::Kind::kDict:
        WriteDict(value.dict());
        break;
      case Value::Kind::kUndefined:
        out_ += "Undefined";
        break;
      default:
        out_ += ToString(value);
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  void WriteSequence(const Sequence& sequence) {
    if (!sequence.repr.empty()) {
      out_ += sequence.repr;
      return;
    }
    const bool tuple = sequence.kind == SequenceKind::kTuple;
    out_ += tuple ? '(' : '[';
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      Write(sequence.items[i]);
    }
    if (tuple && sequence.items.size() == 1) out_ += ',';
    out_ += tuple ? ')' : ']';
  }

  void WriteDict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.items()) {
      if (!first) out_ += ", ";
      first = false;
      Write(key);
      out_ += ": ";
      Write(value);
    }
    out_ += '}';
  }

  const std::size_t max_bytes_;
  std::string out_;
};

void AppendEscape(char32_t c, std::string& out) {
  char buffer[16];
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer, sizeof(buffer), format, static_cast<unsigned>(c));
  out += buffer;
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(end.ptr - buffer));
  std::string sign;
  if (text.front() == '-') {
    sign = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  int exponent = 0;
  std::string_view exponent_text = text.substr(e + 1);
  if (exponent_text.front() == '+') exponent_text.remove_prefix(1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  const int num_digits = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {  // the bounds of Python's repr
    std::string mantissa = digits.substr(0, 1);
    if (num_digits > 1) mantissa += "." + digits.substr(1);
    char suffix[16];
    std::snprintf(suffix, sizeof(suffix), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return sign + mantissa + suffix;
  }
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
  if (num_digits <= exponent + 1) {
    return sign + digits + std::string(exponent + 1 - num_digits, '0') + ".0";
  }
  return sign + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

std::string StringRepr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = ReadUtf8Unit(text.substr(at));
    const char32_t c = unit.code_point;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out += text.substr(at, unit.num_bytes);
    } else {
      AppendEscape(c, out);
    }
    at += unit.num_bytes;
  }
  out += quote;
  return out;
}

std::string Repr(const Value& value, std::size_t max_bytes) {
  ReprWriter writer(max_bytes);
  writer.Write(value);
  return writer.Take();
}

std::string ToString(const Value& value, std::size_t max_bytes) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return {};
    case Value::Kind::kNone:
      return "None";
    case Value::Kind::kBool:
      return value.as_bool() ? "True" : "False";
    case Value::Kind::kInt:
      return std::to_string(value.as_int());
    case Value::Kind::kBigInt:
    case Value::Kind::kString:
      return value.str();
    case Value::Kind::kFloat:
      return FloatRepr(value.as_float());
    case Value::Kind::kSequence:
    case Value::Kind::kDict:
      return Repr(value, max_bytes);
    case Value::Kind::kObject:
      return value.object().Repr();
  }
  return {};
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return "Undefined";
    case Value::Kind::kNone:
      return "NoneType";
    case Value::Kind::kBool:
      return "bool";
    case Value::Kind::kInt:
    case Value::Kind::kBigInt:
      return "int";
    case Value::Kind::kFloat:
      return "float";
    case Value::Kind::kString:
      return "str";
    case Value::Kind::kDict:
      return "dict";
    case Value::Kind::kObject:
      return value.object().type_name();
    case Value::Kind::kSequence:
      break;
  }
  switch (value.sequence().kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kDictView:
      return "dict view";
    case SequenceKind::kGenerator:
      return "generator";
  }
  return "sequence";
}

}  // namespace baton::text::jinja
