#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_format.h"

namespace baton::text::jinja {
namespace {

std::string_view OperatorText(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
    case Operator::kLess:
      return "<";
    case Operator::kLessOrEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    case Operator::kGreaterOrEqual:
      return ">=";
    default:
      return "comparison";
  }
}

[[noreturn]] void FailTypes(Operator op, const Value& left, const Value& right) {
  FailRuntime("unsupported operand types for " + std::string(OperatorText(op)) + ": '" +
              std::string(TypeName(left)) + "' and '" + std::string(TypeName(right)) + "'");
}

[[noreturn]] void FailTooLarge() { throw Error(ErrorKind::kLimit, "integer beyond 64 bits"); }

double AsDouble(const Value& value) {
  if (value.kind() == Value::Kind::kBigInt) FailTooLarge();
  return value.is_float() ? value.as_float() : static_cast<double>(value.as_int());
}

std::int64_t FloorDivide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

std::int64_t Modulo(std::int64_t a, std::int64_t b) {
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value IntegerPower(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) FailRuntime("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  std::int64_t factor = base;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, factor, &result)) FailTooLarge();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(factor, factor, &factor)) FailTooLarge();
  }
  return Value::Int(result);
}

Value IntegerArithmetic(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower:
      return IntegerPower(a, b);
    default:
      if (b == 0) FailRuntime("division by zero");
      if (op == Operator::kDivide) {
        return Value::Float(static_cast<double>(a) / static_cast<double>(b));
      }
      if (a == INT64_MIN && b == -1) {
        if (op == Operator::kModulo) return Value::Int(0);
        FailTooLarge();
      }
      result = op == Operator::kModulo ? Modulo(a, b) : FloorDivide(a, b);
  }
  if (overflow) FailTooLarge();
  return Value::Int(result);
}

Value FloatArithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kPower:
      if (a == 0.0 && b < 0) FailRuntime("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) {
        FailRuntime("a fractional power of a negative number is complex");
      }
      return Value::Float(std::pow(a, b));
    default:
      break;
  }
  if (b == 0.0) FailRuntime("float division by zero");
  if (op == Operator::kDivide) return Value::Float(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0.0 && (rest < 0) != (b < 0)) rest += b;
  if (op == Operator::kModulo) return Value::Float(rest == 0.0 ? std::copysign(0.0, b) : rest);
  return Value::Float(std::round((a - rest) / b));
}

Value Repeat(Interpreter& interpreter, const Value& value, const Value& count_value) {
  if (count_value.kind() == Value::Kind::kBigInt) FailTooLarge();
  const std::int64_t count = std::max<std::int64_t>(0, count_value.as_int());
  const std::size_t size = value.is_string() ? value.str().size() : value.items().size();
  const std::size_t unit = value.is_string() ? 1 : sizeof(Value);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(size * unit, static_cast<std::size_t>(count), &bytes))
    bytes = SIZE_MAX;
  interpreter.CheckAllocation(bytes);
  if (value.is_string()) {
    std::string out;
    out.reserve(bytes);
    for (std::int64_t i = 0; size > 0 && i < count; ++i) out += value.str();
    return interpreter.NewString(std::move(out));
  }
  List items;
  items.reserve(size * static_cast<std::size_t>(count));
  for (std::int64_t i = 0; size > 0 && i < count; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is_tuple() ? interpreter.NewTuple(std::move(items))
                          : interpreter.NewList(std::move(items));
}

bool IsListOrTuple(const Value& value) { return value.is_list() || value.is_tuple(); }

Value Join(Interpreter& interpreter, const Value& left, const Value& right) {
  if (left.is_string()) {
    interpreter.CheckAllocation(left.str().size() + right.str().size());
    return interpreter.NewString(left.str() + right.str());
  }
  interpreter.CheckAllocation((left.items().size() + right.items().size()) * sizeof(Value));
  List items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is_tuple() ? interpreter.NewTuple(std::move(items))
                         : interpreter.NewList(std::move(items));
}

// -1, 0 or 1 for numbers; 2 when one of them is not a number (NaN).
int CompareNumbers(const Value& a, const Value& b) {
  const auto big = [](const Value& v) { return v.kind() == Value::Kind::kBigInt; };
  if (big(a) || big(b)) {
    if (big(a) && big(b) && a.str() == b.str()) return 0;
    const auto exact = [&](const Value& v) {
      return big(v)         ? std::stold(v.str())
             : v.is_float() ? static_cast<long double>(v.as_float())
                            : static_cast<long double>(v.as_int());
    };
    return exact(a) < exact(b) ? -1 : 1;
  }
  if (!a.is_float() && !b.is_float()) {
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  }
  const auto exact = [](const Value& v) {
    return v.is_float() ? static_cast<long double>(v.as_float())
                        : static_cast<long double>(v.as_int());
  };
  const long double x = exact(a);
  const long double y = exact(b);
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

int CompareOrdered(Operator op, const Value& a, const Value& b, std::int64_t* work) {
  if (a.is_undefined()) FailUndefined(a);
  if (b.is_undefined()) FailUndefined(b);
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b);
  if (a.is_string() && b.is_string()) {
    const int order = a.str().compare(b.str());  // UTF-8 sorts as code points do
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    const List& x = a.items();
    const List& y = b.items();
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equals(x[i], y[i], work)) return CompareOrdered(op, x[i], y[i], work);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  FailTypes(op, a, b);
}

// What comparing the text of two strings may cost.
std::int64_t TextCost(const Value& a, const Value& b) {
  if (!a.is_string() || !b.is_string()) return 0;
  return static_cast<std::int64_t>(std::min(a.str().size(), b.str().size()) / 64);
}

}  // namespace

void FailUndefined(const Value& undefined) {
  const std::string hint(undefined.hint());
  throw Error(ErrorKind::kUndefined, hint.empty() ? "a value is undefined" : hint);
}

Value ApplyUnary(Operator op, const Value& operand) {
  if (operand.is_undefined()) FailUndefined(operand);
  if (operand.kind() == Value::Kind::kBigInt) {
    if (op == Operator::kAdd) return operand;
    const std::string& digits = operand.str();
    return Value::BigInt(digits[0] == '-' ? digits.substr(1) : "-" + digits);
  }
  if (operand.is_float()) {
    return Value::Float(op == Operator::kSubtract ? -operand.as_float() : operand.as_float());
  }
  if (!operand.is_integral()) {
    FailRuntime("bad operand type for unary " + std::string(OperatorText(op)) + ": '" +
                std::string(TypeName(operand)) + "'");
  }
  if (op == Operator::kAdd) return Value::Int(operand.as_int());
  return IntegerArithmetic(Operator::kSubtract, 0, operand.as_int());
}

Value ApplyBinary(Interpreter& interpreter, Operator op, const Value& left, const Value& right) {
  if (op == Operator::kModulo && left.is_string()) {
    return interpreter.NewString(FormatPercent(interpreter, left.str(), right));
  }
  if (left.is_undefined()) FailUndefined(left);
  if (right.is_undefined()) FailUndefined(right);
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) {
      return FloatArithmetic(op, AsDouble(left), AsDouble(right));
    }
    if (left.kind() == Value::Kind::kBigInt || right.kind() == Value::Kind::kBigInt) FailTooLarge();
    return IntegerArithmetic(op, left.as_int(), right.as_int());
  }
  if (op == Operator::kAdd) {
    const bool same = (left.is_string() && right.is_string()) ||
                      (left.is_list() && right.is_list()) || (left.is_tuple() && right.is_tuple());
    if (same) return Join(interpreter, left, right);
  }
  if (op == Operator::kMultiply) {
    const auto repeats = [](const Value& v) { return v.is_string() || IsListOrTuple(v); };
    if (repeats(left) && right.is_integral()) return Repeat(interpreter, left, right);
    if (repeats(right) && left.is_integral()) return Repeat(interpreter, right, left);
  }
  FailTypes(op, left, right);
}

bool ApplyComparison(Interpreter& interpreter, Operator op, const Value& left, const Value& right) {
  interpreter.Step(TextCost(left, right));
  if (op == Operator::kIn) return Contains(interpreter, right, left);
  if (op == Operator::kNotIn) return !Contains(interpreter, right, left);
  std::int64_t work = 0;
  if (op == Operator::kEqual || op == Operator::kNotEqual) {
    const bool equal = Equals(left, right, &work);
    interpreter.Step(work);
    return equal == (op == Operator::kEqual);
  }
  const int order = CompareOrdered(op, left, right, &work);
  interpreter.Step(work);
  if (order == 2) return false;
  if (op == Operator::kLess) return order < 0;
  if (op == Operator::kLessOrEqual) return order <= 0;
  return op == Operator::kGreater ? order > 0 : order >= 0;
}

bool LessThan(const Value& left, const Value& right, std::int64_t* work) {
  return CompareOrdered(Operator::kLess, left, right, work) == -1;
}

bool Contains(Interpreter& interpreter, const Value& container, const Value& item) {
  if (container.is_string()) {
    interpreter.Step(static_cast<std::int64_t>(container.str().size() / 64));
    if (item.is_undefined()) FailUndefined(item);
    if (!item.is_string()) {
      FailRuntime("'in <string>' requires string as left operand, not " +
                  std::string(TypeName(item)));
    }
    return container.str().find(item.str()) != std::string::npos;
  }
  if (container.is_dict()) {
    std::string key;
    if (!HashKey(item, key)) FailRuntime("unhashable type: '" + std::string(TypeName(item)) + "'");
    interpreter.Step(static_cast<std::int64_t>(key.size() / 64));
    return container.dict().Find(item) != nullptr;
  }
  for (const Value& candidate : interpreter.Iterate(container)) {
    std::int64_t work = TextCost(candidate, item);
    const bool equal = Equals(candidate, item, &work);
    interpreter.Step(work);
    if (equal) return true;
  }
  return false;
}

Value TruncateToInt(double value) {
  if (std::isnan(value) || std::isinf(value)) FailRuntime("cannot convert float to integer");
  const double whole = std::trunc(value);
  if (std::fabs(whole) < 9.2e18) return Value::Int(static_cast<std::int64_t>(whole));
  char digits[400];
  std::snprintf(digits, sizeof(digits), "%.0f", whole);
  return Value::BigInt(digits);
}

}  // namespace baton::text::jinja
