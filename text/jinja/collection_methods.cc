// The methods of Python's dict, list, tuple and numbers that change nothing. Those that would
// change their object (append, update, ...) do not exist here, as in Jinja's immutable sandbox.
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_format.h"

namespace baton::text::jinja {
namespace {

Value Get(Interpreter&, const Value& self, const BoundArguments& arguments) {
  std::string hash_key;
  if (!HashKey(arguments[0], hash_key)) {
    FailRuntime("unhashable type: '" + std::string(TypeName(arguments[0])) + "'");
  }
  const Value* value = self.dict().Find(arguments[0]);
  return value != nullptr ? *value : arguments.Or(1, Value::None());
}

Value NewView(Interpreter& interpreter, List items, std::string_view name) {
  Sequence sequence;
  sequence.kind = SequenceKind::kDictView;
  sequence.repr = std::string(name) + "(" + Repr(interpreter.NewList(items)) + ")";
  sequence.items = std::move(items);
  return interpreter.NewSequence(std::move(sequence));
}

Value Keys(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return NewView(interpreter, interpreter.Iterate(self), "dict_keys");
}

Value Values(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  List values;
  for (const auto& [key, value] : self.dict().items()) values.push_back(value);
  return NewView(interpreter, std::move(values), "dict_values");
}

Value Items(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  List pairs;
  for (const auto& [key, value] : self.dict().items()) {
    pairs.push_back(interpreter.NewTuple({key, value}));
  }
  return NewView(interpreter, std::move(pairs), "dict_items");
}

Value Copy(Interpreter&, const Value& self, const BoundArguments&) { return self; }

Value Count(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  std::int64_t count = 0;
  for (const Value& item : self.items()) {
    std::int64_t work = 0;
    count += Equals(item, arguments[0], &work);
    interpreter.Step(work);
  }
  return Value::Int(count);
}

Value Index(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    std::int64_t work = 0;
    const bool equal = Equals(self.items()[i], arguments[0], &work);
    interpreter.Step(work);
    if (equal) return Value::Int(static_cast<std::int64_t>(i));
  }
  FailRuntime("the value is not in the " + std::string(TypeName(self)));
}

Value IsInteger(Interpreter&, const Value& self, const BoundArguments&) {
  return Value::Bool(!self.is_float() || std::floor(self.as_float()) == self.as_float());
}

const Builtin* Find(const std::vector<Builtin>& table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace

const Builtin* FindDictMethod(std::string_view name) {
  static const std::vector<Builtin> table = {
      {"get", 1, {"key", "default"}, false, Get},
      {"keys", 0, {}, false, Keys},
      {"values", 0, {}, false, Values},
      {"items", 0, {}, false, Items},
      {"copy", 0, {}, false, Copy},
  };
  return Find(table, name);
}

const Builtin* FindSequenceMethod(std::string_view name) {
  static const std::vector<Builtin> table = {
      {"count", 1, {"value"}, false, Count},
      {"index", 1, {"value"}, false, Index},
      {"copy", 0, {}, false, Copy},
  };
  return Find(table, name);
}

const Builtin* FindNumberMethod(std::string_view name) {
  static const std::vector<Builtin> table = {{"is_integer", 0, {}, false, IsInteger}};
  return Find(table, name);
}

}  // namespace baton::text::jinja
