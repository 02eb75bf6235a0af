// str.format and printf-style formatting, with Python's format specifications.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_format.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

constexpr int kMaxPrecision = 400;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '=' or none
  char sign = '-';    // '+', '-', ' '
  bool alternate = false;
  char grouping = '\0';  // ',' or '_'
  std::int64_t width = 0;
  int precision = -1;
  char type = '\0';
};

std::int64_t TakeNumber(std::string_view& text) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc::result_out_of_range)
    FailRuntime("Too many decimal digits in format string");
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return value;
}

bool IsAnyOf(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
bool StartsWithDigit(std::string_view text) {
  return !text.empty() && text[0] >= '0' && text[0] <= '9';
}

int TakePrecision(std::string_view& text) {
  const std::int64_t precision = StartsWithDigit(text) ? TakeNumber(text) : 0;
  if (precision > kMaxPrecision) throw Error(ErrorKind::kLimit, "format precision too large");
  return static_cast<int>(precision);
}

Spec ParseSpec(std::string_view text) {
  Spec spec;
  if (!text.empty()) {
    const std::size_t size = ReadUtf8Unit(text).num_bytes;
    if (text.size() > size && IsAnyOf(text[size], "<>^=")) {
      spec.fill = std::string(text.substr(0, size));
      spec.align = text[size];
      text.remove_prefix(size + 1);
    } else if (IsAnyOf(text[0], "<>^=")) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
  }
  const auto take = [&](std::string_view set) {
    if (text.empty() || !IsAnyOf(text[0], set)) return '\0';
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (take("0") != '\0' && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  if (StartsWithDigit(text)) spec.width = TakeNumber(text);
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    if (!StartsWithDigit(text)) FailRuntime("Format specifier missing precision");
    spec.precision = TakePrecision(text);
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (!text.empty()) FailRuntime("Invalid format specifier");
  return spec;
}

std::string Pad(Interpreter& interpreter, const std::string& sign, const std::string& body,
                const Spec& spec, char default_align) {
  const auto length = static_cast<std::int64_t>(sign.size() + CountCodePoints(body));
  const std::int64_t padding = std::max<std::int64_t>(0, spec.width - length);
  interpreter.CheckAllocation(padding > (std::int64_t{1} << 40)
                                  ? SIZE_MAX
                                  : static_cast<std::size_t>(padding) * spec.fill.size());
  const auto fill = [&](std::int64_t count) {
    std::string out;
    for (std::int64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  const char align = spec.align == '\0' ? default_align : spec.align;
  if (align == '<') return sign + body + fill(padding);
  if (align == '=') return sign + fill(padding) + body;
  if (align == '^') return fill(padding / 2) + sign + body + fill(padding - padding / 2);
  return fill(padding) + sign + body;
}

// Puts `separator` between groups of digits before the point.
std::string Group(const std::string& digits, char separator, std::size_t group) {
  const std::size_t point =
      std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < point; ++i) {
    if (i > 0 && (point - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(point);
}

std::string IntegerDigits(std::uint64_t magnitude, char type) {
  std::array<char, 72> buffer;
  const int base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base);
  std::string digits(buffer.data(), result.ptr);
  if (type == 'X') std::transform(digits.begin(), digits.end(), digits.begin(), ::toupper);
  return digits;
}

std::string FormatInteger(Interpreter& interpreter, const Value& value, const Spec& spec) {
  std::string digits;
  bool negative = false;
  if (value.kind() == Value::Kind::kBigInt) {
    if (IsAnyOf(spec.type, "boxX")) throw Error(ErrorKind::kLimit, "integer beyond 64 bits");
    negative = value.str()[0] == '-';
    digits = value.str().substr(negative ? 1 : 0);
  } else {
    const std::int64_t integer = value.as_int();
    negative = integer < 0;
    const auto bits = static_cast<std::uint64_t>(integer);
    digits = IntegerDigits(negative ? ~bits + 1 : bits, spec.type);
  }
  if (spec.grouping != '\0')
    digits = Group(digits, spec.grouping, IsAnyOf(spec.type, "boxX") ? 4 : 3);
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.alternate && IsAnyOf(spec.type, "boxX")) sign += std::string("0") + spec.type;
  return Pad(interpreter, sign, digits, spec, '>');
}

// The digits of a magnitude in one of C's formats, which are Python's as well.
std::string FloatDigits(double magnitude, const Spec& spec, char type, int precision) {
  std::string format = spec.alternate ? "%#.*" : "%.*";
  format += type;
  std::array<char, 1024> buffer;
  const int size =
      std::snprintf(buffer.data(), buffer.size(), format.c_str(), precision, magnitude);
  return std::string(buffer.data(), static_cast<std::size_t>(std::min(size, 1023)));
}

std::string FormatFloat(Interpreter& interpreter, const Value& value, const Spec& spec) {
  if (value.kind() == Value::Kind::kBigInt)
    throw Error(ErrorKind::kLimit, "integer beyond 64 bits");
  double real = value.is_float() ? value.as_float() : static_cast<double>(value.as_int());
  const bool negative = std::signbit(real) && !std::isnan(real);
  const bool percent = spec.type == '%';
  if (percent) real *= 100;
  const double magnitude = std::fabs(real);
  const char type = percent ? 'f' : spec.type == '\0' || spec.type == 'n' ? 'g' : spec.type;
  std::string digits;
  if (!std::isfinite(magnitude)) {
    digits = std::isnan(magnitude) ? "nan" : "inf";
    if (IsAnyOf(spec.type, "EFG"))
      std::transform(digits.begin(), digits.end(), digits.begin(), ::toupper);
  } else if (spec.type == '\0' && spec.precision < 0) {
    digits = FloatRepr(magnitude);
  } else {
    digits = FloatDigits(magnitude, spec, type, spec.precision < 0 ? 6 : spec.precision);
    if (spec.type == '\0' && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  }
  if (spec.grouping != '\0') digits = Group(digits, spec.grouping, 3);
  if (percent) digits += '%';
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return Pad(interpreter, sign, digits, spec, '>');
}

std::string FormatText(Interpreter& interpreter, std::string text, const Spec& spec) {
  if (spec.precision >= 0) {
    text = FromCodePoints(std::u32string_view(ToCodePoints(text))
                              .substr(0, static_cast<std::size_t>(spec.precision)));
  }
  return Pad(interpreter, "", text, spec, '<');
}

// format(value, spec).
std::string FormatValue(Interpreter& interpreter, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return interpreter.Print(value);
  const Spec spec = ParseSpec(spec_text);
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's')
      FailRuntime("Unknown format code for object of type 'str'");
    if (spec.align == '=' && spec.fill != "0")
      FailRuntime("'=' alignment not allowed in string format specifier");
    Spec adjusted = spec;
    if (spec.align == '=') adjusted.align = '<';
    return FormatText(interpreter, value.str(), adjusted);
  }
  if (value.is_float()) {
    if (IsAnyOf(spec.type, "bcdosxX") && spec.type != '\0')
      FailRuntime("Unknown format code for object of type 'float'");
    return FormatFloat(interpreter, value, spec);
  }
  if (value.is_integral()) {
    if (spec.type == 's') FailRuntime("Unknown format code 's' for object of type 'int'");
    if (spec.type == 'c') {
      std::string text;
      const std::int64_t code = value.is_int() || value.is_bool() ? value.as_int() : -1;
      if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        FailRuntime("%c arg not in range");
      AppendUtf8(static_cast<char32_t>(code), text);
      return Pad(interpreter, "", text, spec, '<');
    }
    if (spec.type != '\0' && IsAnyOf(spec.type, "eEfFgG%"))
      return FormatFloat(interpreter, value, spec);
    if (spec.precision >= 0) FailRuntime("Precision not allowed in integer format specifier");
    return FormatInteger(interpreter, value, spec);
  }
  FailRuntime("unsupported format string passed to " + std::string(TypeName(value)) +
              ".__format__");
}

// The fields of str.format: {}, {0}, {name}, {a.b[c]}, {x!r}, {x:spec}, {x:{width}}.
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const CallArguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  std::string Run(std::string_view format, int depth) {
    if (depth > 2) FailRuntime("Max string recursion exceeded");
    std::string out;
    for (std::size_t i = 0; i < format.size(); ++i) {
      const char c = format[i];
      const bool doubled = i + 1 < format.size() && format[i + 1] == c;
      if (c != '{' && c != '}') {
        out += c;
      } else if (doubled) {
        out += c;
        ++i;
      } else if (c == '}') {
        FailRuntime("Single '}' encountered in format string");
      } else {
        const std::size_t end = FindEnd(format, i + 1);
        out += Field(format.substr(i + 1, end - i - 1), depth);
        i = end;
        interpreter_.CheckAllocation(out.size());
      }
    }
    return out;
  }

 private:
  static std::size_t FindEnd(std::string_view format, std::size_t begin) {
    int open = 1;
    for (std::size_t i = begin; i < format.size(); ++i) {
      if (format[i] == '{') ++open;
      if (format[i] == '}' && --open == 0) return i;
    }
    FailRuntime("expected '}' before end of string");
  }

  std::string Field(std::string_view field, int depth) {
    const std::size_t colon = field.find(':');
    std::string_view name = field.substr(0, colon);
    char conversion = '\0';
    if (const std::size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (name.size() != mark + 2) FailRuntime("expected ':' after conversion specifier");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    Value value = Lookup(name);
    if (conversion == 'r' || conversion == 'a') value = interpreter_.NewString(Repr(value));
    if (conversion == 's') value = interpreter_.NewString(interpreter_.Print(value));
    if (conversion != '\0' && !IsAnyOf(conversion, "rsa"))
      FailRuntime("Unknown conversion specifier");
    const std::string spec =
        colon == std::string_view::npos ? "" : Run(field.substr(colon + 1), depth + 1);
    return FormatValue(interpreter_, value, spec);
  }

  Value Lookup(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = First(name.substr(0, end));
    name.remove_prefix(end);
    while (!name.empty()) {
      if (name[0] == '.') {
        name.remove_prefix(1);
        const std::size_t size = std::min(name.find_first_of(".["), name.size());
        value = interpreter_.GetAttribute(value, name.substr(0, size));
        name.remove_prefix(size);
      } else {
        const std::size_t close = name.find(']');
        if (name[0] != '[' || close == std::string_view::npos)
          FailRuntime("Missing ']' in format string");
        std::string_view key = name.substr(1, close - 1);
        const bool is_index = StartsWithDigit(key);
        value = interpreter_.GetItem(value, is_index ? Value::Int(TakeNumber(key))
                                                     : interpreter_.NewString(std::string(key)));
        name.remove_prefix(close + 1);
      }
      if (value.is_undefined()) FailUndefined(value);
    }
    return value;
  }

  Value First(std::string_view name) {
    if (name.empty() || StartsWithDigit(name)) {
      const std::int64_t index = name.empty() ? next_++ : TakeNumber(name);
      if (!name.empty() || index >= static_cast<std::int64_t>(arguments_.positional.size())) {
        FailRuntime("Replacement index out of range for positional args tuple");
      }
      return arguments_.positional[static_cast<std::size_t>(index)];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    FailRuntime("no argument named '" + std::string(name) + "' for the format string");
  }

  Interpreter& interpreter_;
  const CallArguments& arguments_;
  std::int64_t next_ = 0;
};

// The fields of "..." % values: %s, %d, %5.2f, %(name)s, %%.
class PercentFormatter {
 public:
  PercentFormatter(Interpreter& interpreter, const Value& values)
      : interpreter_(interpreter), values_(values) {}

  std::string Run(std::string_view format) {
    std::string out;
    while (!format.empty()) {
      const std::size_t percent = format.find('%');
      out += format.substr(0, percent);
      if (percent == std::string_view::npos) break;
      format.remove_prefix(percent + 1);
      out += Field(format);
      interpreter_.CheckAllocation(out.size());
    }
    const bool all_used = !values_.is_tuple() || next_ == values_.items().size();
    const bool needs_use = !values_.is_dict() && !values_.is_list();
    if (!all_used || (needs_use && !values_.is_tuple() && next_ == 0)) {
      FailRuntime("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  std::string Field(std::string_view& format) {
    const Value* named = nullptr;
    if (format.starts_with('(')) {
      const std::size_t close = format.find(')');
      if (close == std::string_view::npos) FailRuntime("incomplete format key");
      if (!values_.is_dict()) FailRuntime("format requires a mapping");
      named = values_.dict().Find(format.substr(1, close - 1));
      if (named == nullptr) FailRuntime("format key not found");
      format.remove_prefix(close + 1);
    }
    Spec spec = TakeSpec(format);
    if (format.empty()) FailRuntime("incomplete format");
    const char type = format[0];
    format.remove_prefix(1);
    if (type == '%') return "%";
    const Value value = named != nullptr ? *named : Next();
    if (type == 's' || type == 'r' || type == 'a') {
      if (spec.align != '<') spec.align = '>';
      spec.fill = " ";
      return FormatText(interpreter_, type == 's' ? interpreter_.Print(value) : Repr(value), spec);
    }
    return Number(value, spec, type);
  }

  Spec TakeSpec(std::string_view& format) {
    Spec spec;
    for (; !format.empty() && IsAnyOf(format[0], "-+ #0"); format.remove_prefix(1)) {
      if (format[0] == '-') spec.align = '<';
      if (format[0] == '+') spec.sign = '+';
      if (format[0] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (format[0] == '#') spec.alternate = true;
      if (format[0] == '0') spec.fill = "0";
    }
    if (spec.align == '<') spec.fill = " ";
    if (spec.fill == "0") spec.align = '=';
    if (StartsWithDigit(format)) spec.width = TakeNumber(format);
    if (format.starts_with('.')) {
      format.remove_prefix(1);
      spec.precision = TakePrecision(format);
    }
    return spec;
  }

  std::string Number(const Value& value, Spec spec, char type) {
    if (value.is_undefined()) FailUndefined(value);
    if (type == 'c') {
      if (value.is_string() && CountCodePoints(value.str()) == 1)
        return FormatText(interpreter_, value.str(), spec);
      if (!value.is_int()) FailRuntime("%c requires int or char");
      spec.type = 'c';
      return FormatValue(interpreter_, value, "c");
    }
    if (!value.is_number())
      FailRuntime("%" + std::string(1, type) + " format: a number is required");
    if (IsAnyOf(type, "diuoxX")) {
      spec.type = IsAnyOf(type, "diu") ? 'd' : type;
      spec.precision = -1;
      return FormatInteger(interpreter_, value.is_float() ? TruncateToInt(value.as_float()) : value,
                           spec);
    }
    if (!IsAnyOf(type, "eEfFgG")) FailRuntime("unsupported format character");
    spec.type = type;
    return FormatFloat(interpreter_, value, spec);
  }

  Value Next() {
    if (!values_.is_tuple()) {
      if (next_++ > 0) FailRuntime("not enough arguments for format string");
      return values_;
    }
    if (next_ >= values_.items().size()) FailRuntime("not enough arguments for format string");
    return values_.items()[next_++];
  }

  Interpreter& interpreter_;
  const Value& values_;
  std::size_t next_ = 0;
};

}  // namespace

std::string FormatBraces(Interpreter& interpreter, std::string_view format,
                         const CallArguments& arguments) {
  return BraceFormatter(interpreter, arguments).Run(format, 0);
}

std::string FormatPercent(Interpreter& interpreter, std::string_view format,
                          const Value& arguments) {
  return PercentFormatter(interpreter, arguments).Run(format);
}

}  // namespace baton::text::jinja
