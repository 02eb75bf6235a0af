#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/object.h"
#include "text/jinja/value.h"

namespace baton::text::jinja {

class Interpreter;

// Arguments as a builtin declares them: by position of its parameters, wherever they were written.
class BoundArguments {
 public:
  bool Has(std::size_t index) const { return index < given_.size() && given_[index]; }
  const Value& operator[](std::size_t index) const { return values_[index]; }
  // The argument, or `fallback` when it was not given.
  Value Or(std::size_t index, Value fallback) const {
    return Has(index) ? values_[index] : std::move(fallback);
  }
  // What a variadic builtin got beyond its parameters.
  const CallArguments& rest() const { return rest_; }

 private:
  friend BoundArguments Bind(const struct Builtin& builtin, const CallArguments& arguments);
  std::vector<Value> values_;
  std::vector<bool> given_;
  CallArguments rest_;
};

// A filter, test, function or method written in C++. `self` is the filtered or tested value or the
// method's object; None for a function.
struct Builtin {
  std::string_view name;
  std::size_t num_required = 0;
  std::vector<std::string_view> parameters;
  bool variadic = false;
  Value (*run)(Interpreter& interpreter, const Value& self, const BoundArguments& arguments);
};

// Throws Error(kRuntime) for missing or surplus arguments.
BoundArguments Bind(const Builtin& builtin, const CallArguments& arguments);

// All return nullptr for an unknown name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
const Builtin* FindStringMethod(std::string_view name);
const Builtin* FindSequenceMethod(std::string_view name);  // of lists and tuples
const Builtin* FindDictMethod(std::string_view name);
const Builtin* FindNumberMethod(std::string_view name);

// The tables those search, one per source file.
std::span<const Builtin> StringFilters();    // filters_string.cc
std::span<const Builtin> SequenceFilters();  // filters_sequence.cc
std::span<const Builtin> ValueFilters();     // filters_value.cc
std::span<const Builtin> Tests();            // tests.cc

// str.format and the % operator, in format_string.cc.
std::string FormatBraces(Interpreter& interpreter, std::string_view format,
                         const CallArguments& arguments);
std::string FormatPercent(Interpreter& interpreter, std::string_view format,
                          const Value& arguments);

// An argument that must be an integer or a string; throws Error(kRuntime) naming `what` otherwise.
std::int64_t IntArgument(const Value& value, std::string_view what);
const std::string& StringArgument(const Value& value, std::string_view what);

}  // namespace baton::text::jinja
