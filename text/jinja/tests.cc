#include <cmath>

#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_format.h"
#include "text/jinja/unicode.h"

namespace baton::text::jinja {
namespace {

using Kind = Value::Kind;

template <bool (*kPredicate)(const Value&)>
Value Check(Interpreter&, const Value& self, const BoundArguments&) {
  return Value::Bool(kPredicate(self));
}

template <Operator kOperator>
Value CompareTo(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  return Value::Bool(ApplyComparison(interpreter, kOperator, self, arguments[0]));
}

bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsString(const Value& v) { return v.is_string(); }
bool IsMapping(const Value& v) { return v.is_dict(); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsBoolean(const Value& v) { return v.is_bool(); }
bool IsTrue(const Value& v) { return v.is_bool() && v.as_bool(); }
bool IsFalse(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool IsInteger(const Value& v) { return v.is_integral() && !v.is_bool(); }
bool IsFloat(const Value& v) { return v.is_float(); }
// An undefined value has a __call__ in Jinja, which fails.
bool IsCallable(const Value& v) {
  return v.is_undefined() || (v.is_object() && v.object().is_callable());
}
bool IsIterable(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is_dict() || v.is_undefined();
}
// Jinja asks for a length and subscripts, which generators and views lack; undefined has both.
bool IsSequenceLike(const Value& v) {
  if (v.is_string() || v.is_dict() || v.is_undefined()) return true;
  return v.is_list() || v.is_tuple() ||
         (v.is_sequence() && v.sequence().kind == SequenceKind::kRange);
}

// str.islower and str.isupper of the value as text: all cased characters are, and there is one.
bool AllCased(const Value& value, bool (*is_case)(char32_t)) {
  bool any = false;
  for (const char32_t c : ToCodePoints(ToString(value))) {
    if (!IsCased(c)) continue;
    if (!is_case(c)) return false;
    any = true;
  }
  return any;
}
bool IsLowerText(const Value& v) { return AllCased(v, jinja::IsLower); }
bool IsUpperText(const Value& v) { return AllCased(v, jinja::IsUpper); }

Value Remainder(Interpreter& interpreter, const Value& self, std::int64_t divisor) {
  return ApplyBinary(interpreter, Operator::kModulo, self, Value::Int(divisor));
}
Value IsOdd(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return Value::Bool(Equals(Remainder(interpreter, self, 2), Value::Int(1)));
}
Value IsEven(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return Value::Bool(Equals(Remainder(interpreter, self, 2), Value::Int(0)));
}
Value IsDivisibleBy(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  return Value::Bool(
      Equals(ApplyBinary(interpreter, Operator::kModulo, self, arguments[0]), Value::Int(0)));
}

Value IsSameAs(Interpreter&, const Value& self, const BoundArguments& arguments) {
  const Value& other = arguments[0];
  if (self.kind() != other.kind()) return Value::Bool(false);
  if (self.is_sequence() || self.is_dict() || self.is_object()) {
    return Value::Bool(self.SamePayload(other));
  }
  return Value::Bool(Equals(self, other));
}

Value IsIn(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  return Value::Bool(Contains(interpreter, arguments[0], self));
}

Value IsFilterName(Interpreter&, const Value& self, const BoundArguments&) {
  return Value::Bool(self.is_string() && FindFilter(self.str()) != nullptr);
}
Value IsTestName(Interpreter&, const Value& self, const BoundArguments&) {
  return Value::Bool(self.is_string() && FindTest(self.str()) != nullptr);
}

bool IsEscaped(const Value&) { return false; }

const std::vector<Builtin>& Table() {
  static const std::vector<Builtin> table = {
      {"defined", 0, {}, false, Check<IsDefined>},
      {"undefined", 0, {}, false, Check<IsUndefined>},
      {"none", 0, {}, false, Check<IsNone>},
      {"string", 0, {}, false, Check<IsString>},
      {"mapping", 0, {}, false, Check<IsMapping>},
      {"number", 0, {}, false, Check<IsNumber>},
      {"boolean", 0, {}, false, Check<IsBoolean>},
      {"true", 0, {}, false, Check<IsTrue>},
      {"false", 0, {}, false, Check<IsFalse>},
      {"integer", 0, {}, false, Check<IsInteger>},
      {"float", 0, {}, false, Check<IsFloat>},
      {"callable", 0, {}, false, Check<IsCallable>},
      {"iterable", 0, {}, false, Check<IsIterable>},
      {"sequence", 0, {}, false, Check<IsSequenceLike>},
      {"lower", 0, {}, false, Check<IsLowerText>},
      {"upper", 0, {}, false, Check<IsUpperText>},
      {"escaped", 0, {}, false, Check<IsEscaped>},
      {"odd", 0, {}, false, IsOdd},
      {"even", 0, {}, false, IsEven},
      {"divisibleby", 1, {"num"}, false, IsDivisibleBy},
      {"sameas", 1, {"other"}, false, IsSameAs},
      {"in", 1, {"seq"}, false, IsIn},
      {"filter", 0, {}, false, IsFilterName},
      {"test", 0, {}, false, IsTestName},
      {"eq", 1, {"other"}, false, CompareTo<Operator::kEqual>},
      {"equalto", 1, {"other"}, false, CompareTo<Operator::kEqual>},
      {"==", 1, {"other"}, false, CompareTo<Operator::kEqual>},
      {"ne", 1, {"other"}, false, CompareTo<Operator::kNotEqual>},
      {"!=", 1, {"other"}, false, CompareTo<Operator::kNotEqual>},
      {"lt", 1, {"other"}, false, CompareTo<Operator::kLess>},
      {"lessthan", 1, {"other"}, false, CompareTo<Operator::kLess>},
      {"<", 1, {"other"}, false, CompareTo<Operator::kLess>},
      {"le", 1, {"other"}, false, CompareTo<Operator::kLessOrEqual>},
      {"<=", 1, {"other"}, false, CompareTo<Operator::kLessOrEqual>},
      {"gt", 1, {"other"}, false, CompareTo<Operator::kGreater>},
      {"greaterthan", 1, {"other"}, false, CompareTo<Operator::kGreater>},
      {">", 1, {"other"}, false, CompareTo<Operator::kGreater>},
      {"ge", 1, {"other"}, false, CompareTo<Operator::kGreaterOrEqual>},
      {">=", 1, {"other"}, false, CompareTo<Operator::kGreaterOrEqual>},
  };
  return table;
}

}  // namespace

std::span<const Builtin> Tests() { return Table(); }

}  // namespace baton::text::jinja
