// Filters of numbers and of any value.
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/json.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_format.h"
#include "text/jinja/unicode.h"

namespace baton::text::jinja {
namespace {

Value Default(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const bool replace =
      self.is_undefined() || (arguments.Has(1) && IsTruthy(arguments[1]) && !IsTruthy(self));
  return replace ? arguments.Or(0, interpreter.NewString("")) : self;
}

Value ToStringFilter(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return self.is_string() ? self : interpreter.NewString(interpreter.Print(self));
}

// A number's text as Python's int() and float() take it: stripped, single underscores allowed.
std::string CleanNumber(std::string_view text) {
  text = Strip(text, Side::kBoth);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && text[i - 1] != '_' && text[i + 1] != '_';
    if (text[i] == '_' && between) continue;
    out += text[i];
  }
  if (!out.empty() && out[0] == '+') out.erase(0, 1);
  return out;
}

bool ParseFloat(std::string_view text, double& value) {
  const std::string clean = CleanNumber(text);
  const auto result = std::from_chars(clean.data(), clean.data() + clean.size(), value);
  return !clean.empty() && result.ec == std::errc() && result.ptr == clean.data() + clean.size();
}

bool ParseInt(std::string_view text, int base, Value& value) {
  std::string clean = CleanNumber(text);
  const std::size_t sign = !clean.empty() && clean[0] == '-' ? 1 : 0;
  if (base != 10 && clean.size() > sign + 2 && clean[sign] == '0') {
    const char letter = static_cast<char>(clean[sign + 1] | 0x20);
    const bool prefix = (base == 16 && letter == 'x') || (base == 8 && letter == 'o') ||
                        (base == 2 && letter == 'b');
    if (prefix) clean.erase(sign, 2);
  }
  std::int64_t integer = 0;
  const auto result = std::from_chars(clean.data(), clean.data() + clean.size(), integer, base);
  if (clean.empty() || result.ptr != clean.data() + clean.size()) return false;
  if (result.ec == std::errc()) {
    value = Value::Int(integer);
    return true;
  }
  if (result.ec != std::errc::result_out_of_range || base != 10) return false;
  value = Value::BigInt(std::move(clean));
  return true;
}

Value ToInt(Interpreter&, const Value& self, const BoundArguments& arguments) {
  if (self.is_undefined()) FailUndefined(self);
  const Value fallback = arguments.Or(0, Value::Int(0));
  const std::int64_t base = arguments.Has(1) ? IntArgument(arguments[1], "base") : 10;
  if (base < 2 || base > 36) FailRuntime("int() base must be 2 to 36");
  if (self.is_string()) {
    Value value;
    double real = 0.0;
    if (ParseInt(self.str(), static_cast<int>(base), value)) return value;
    if (ParseFloat(self.str(), real) && std::isfinite(real)) return TruncateToInt(real);
    return fallback;
  }
  if (self.is_float())
    return std::isfinite(self.as_float()) ? TruncateToInt(self.as_float()) : fallback;
  if (self.is_bool()) return Value::Int(self.as_int());
  return self.is_integral() ? self : fallback;
}

Value ToFloat(Interpreter&, const Value& self, const BoundArguments& arguments) {
  if (self.is_undefined()) FailUndefined(self);
  double real = 0.0;
  if (self.is_float()) return self;
  if (self.kind() == Value::Kind::kBigInt || self.is_string()) {
    if (ParseFloat(self.str(), real)) return Value::Float(real);
  } else if (self.is_integral()) {
    return Value::Float(static_cast<double>(self.as_int()));
  }
  return arguments.Or(0, Value::Float(0.0));
}

Value Abs(Interpreter&, const Value& self, const BoundArguments&) {
  if (self.is_float()) return Value::Float(std::fabs(self.as_float()));
  if (self.is_number() && self.kind() != Value::Kind::kBigInt && self.as_int() >= 0) {
    return Value::Int(self.as_int());
  }
  if (self.kind() == Value::Kind::kBigInt && self.str()[0] != '-') return self;
  if (self.is_undefined()) FailUndefined(self);
  if (!self.is_number()) FailRuntime("bad operand type for abs()");
  return ApplyUnary(Operator::kSubtract, self);
}

// Python's round(value, digits): correctly rounded in decimal, halves to even.
double RoundDecimal(double value, int digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    const double scale = std::pow(10.0, -digits);
    return std::nearbyint(value / scale) * scale;
  }
  std::array<char, 800> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::fixed, digits);
  double rounded = value;
  std::from_chars(buffer.data(), result.ptr, rounded);
  return rounded;
}

Value Round(Interpreter&, const Value& self, const BoundArguments& arguments) {
  if (self.is_undefined()) FailUndefined(self);
  if (!self.is_number()) FailRuntime("type " + std::string(TypeName(self)) + " cannot be rounded");
  const std::int64_t precision = arguments.Has(0) ? IntArgument(arguments[0], "precision") : 0;
  const int digits = static_cast<int>(std::clamp<std::int64_t>(precision, -400, 400));
  const std::string method = arguments.Has(1) ? StringArgument(arguments[1], "method") : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    FailRuntime("method must be common, ceil or floor");
  }
  if (self.kind() == Value::Kind::kBigInt) return self;
  if (method == "common") {
    if (!self.is_float() && digits >= 0) return Value::Int(self.as_int());
    const double real = self.is_float() ? self.as_float() : static_cast<double>(self.as_int());
    const double rounded = RoundDecimal(real, digits);
    return self.is_float() ? Value::Float(rounded) : TruncateToInt(rounded);
  }
  const double real = self.is_float() ? self.as_float() : static_cast<double>(self.as_int());
  const double scale = std::pow(10.0, digits);
  const double scaled = real * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value ToJsonFilter(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  JsonFormat format;
  format.ensure_ascii = arguments.Has(0) && IsTruthy(arguments[0]);
  if (arguments.Has(1) && !arguments[1].is_none()) {
    format.has_indent = true;
    if (arguments[1].is_string()) {
      format.indent = arguments[1].str();
    } else {
      const std::int64_t width = IntArgument(arguments[1], "indent");
      const auto num_spaces = static_cast<std::size_t>(std::max<std::int64_t>(width, 0));
      interpreter.CheckAllocation(num_spaces);
      format.indent = std::string(num_spaces, ' ');
    }
  }
  if (arguments.Has(2) && !arguments[2].is_none()) {
    const List separators = interpreter.Iterate(arguments[2]);
    if (separators.size() != 2) FailRuntime("separators must be two strings");
    format.item_separator = StringArgument(separators[0], "separators");
    format.key_separator = StringArgument(separators[1], "separators");
  }
  format.sort_keys = arguments.Has(3) && IsTruthy(arguments[3]);
  return interpreter.NewString(ToJson(self, format, kMaxPrintedBytes));
}

Value Attr(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::string& name = StringArgument(arguments[0], "attribute name");
  if (self.is_undefined()) FailUndefined(self);
  // Unlike a dot, this filter never looks at a dict's keys.
  const bool is_key = self.is_dict() && FindDictMethod(name) == nullptr;
  return is_key ? Value::Undefined("'dict object' has no attribute '" + name + "'")
                : interpreter.GetAttribute(self, name);
}

Value Safe(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  return ToStringFilter(interpreter, self, arguments);
}

Value FileSizeFormat(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const bool binary = arguments.Has(0) && IsTruthy(arguments[0]);
  double bytes = 0.0;
  const bool is_text = self.is_string();
  if (is_text ? !ParseFloat(self.str(), bytes) : !self.is_number()) {
    FailRuntime("filesizeformat needs a number, not " + std::string(TypeName(self)));
  }
  if (!is_text) bytes = ToFloat(interpreter, self, BoundArguments()).as_float();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return interpreter.NewString("1 Byte");
  if (bytes < base) {
    return interpreter.NewString(std::to_string(static_cast<std::int64_t>(bytes)) + " Bytes");
  }
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  while (i + 1 < kPrefixes.size() && bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  std::array<char, 64> buffer;
  const int size = std::snprintf(buffer.data(), buffer.size(), "%.1f ", bytes / unit);
  std::string out(buffer.data(), static_cast<std::size_t>(size));
  out += binary ? static_cast<char>(kPrefixes[i] & ~0x20) : kPrefixes[i];
  return interpreter.NewString(out + (binary ? "iB" : "B"));
}

const std::vector<Builtin>& Table() {
  static const std::vector<Builtin> table = {
      {"default", 0, {"default_value", "boolean"}, false, Default},
      {"d", 0, {"default_value", "boolean"}, false, Default},
      {"string", 0, {}, false, ToStringFilter},
      {"int", 0, {"default", "base"}, false, ToInt},
      {"float", 0, {"default"}, false, ToFloat},
      {"abs", 0, {}, false, Abs},
      {"round", 0, {"precision", "method"}, false, Round},
      {"tojson", 0, {"ensure_ascii", "indent", "separators", "sort_keys"}, false, ToJsonFilter},
      {"attr", 1, {"name"}, false, Attr},
      {"safe", 0, {}, false, Safe},
      {"filesizeformat", 0, {"binary"}, false, FileSizeFormat},
  };
  return table;
}

}  // namespace

std::span<const Builtin> ValueFilters() { return Table(); }

}  // namespace baton::text::jinja
