#pragma once
#include <cstdint>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace baton::text::jinja {

class Interpreter;

// Python's operators. All throw Error: kRuntime for types that do not go together, kUndefined for
// an undefined operand, kLimit for an integer beyond 64 bits or a result too large.
Value ApplyUnary(Operator op, const Value& operand);
Value ApplyBinary(Interpreter& interpreter, Operator op, const Value& left, const Value& right);
bool ApplyComparison(Interpreter& interpreter, Operator op, const Value& left, const Value& right);

// left < right, for sorting. Counts into `work` as Equals does.
bool LessThan(const Value& left, const Value& right, std::int64_t* work = nullptr);

// item in container.
bool Contains(Interpreter& interpreter, const Value& container, const Value& item);

// int() of a float, dropping the fraction.
Value TruncateToInt(double value);

// Throws what using an undefined value throws.
[[noreturn]] void FailUndefined(const Value& undefined);

}  // namespace baton::text::jinja
