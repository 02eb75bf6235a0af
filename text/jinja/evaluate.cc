#include <algorithm>
#include <charconv>

#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_format.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

std::string DescribeType(const Value& value) {
  return value.is_none() ? "None" : "'" + std::string(TypeName(value)) + " object'";
}

Value MissingAttribute(const Value& object, std::string_view name) {
  return Value::Undefined(DescribeType(object) + " has no attribute '" + std::string(name) + "'");
}

const Builtin* FindMethod(const Value& object, std::string_view name) {
  if (object.is_string()) return FindStringMethod(name);
  if (object.is_dict()) return FindDictMethod(name);
  if (object.is_list() || object.is_tuple()) return FindSequenceMethod(name);
  if (object.is_number()) return FindNumberMethod(name);
  return nullptr;
}

// Python's slice.indices: where to begin, and how many items to take.
struct SliceRange {
  std::int64_t begin = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};

SliceRange MakeSliceRange(const Value& begin, const Value& end, const Value& step,
                          std::int64_t length) {
  const auto integer = [](const Value& value, std::int64_t fallback) {
    if (value.is_none()) return fallback;
    if (value.is_undefined()) FailUndefined(value);
    return IntArgument(value, "slice indices");
  };
  SliceRange range;
  range.step = integer(step, 1);
  if (range.step == 0) FailRuntime("slice step cannot be zero");
  range.step = std::clamp<std::int64_t>(range.step, -length - 1, length + 1);
  const bool forward = range.step > 0;
  const std::int64_t low = forward ? 0 : -1;
  const std::int64_t high = forward ? length : length - 1;
  const auto place = [&](const Value& value, std::int64_t fallback) {
    if (value.is_none()) return fallback;
    std::int64_t index = integer(value, 0);
    if (index < 0) index = index < -length ? low : index + length;
    return std::clamp(index, low, high);
  };
  range.begin = place(begin, forward ? low : high);
  const std::int64_t stop = place(end, forward ? high : low);
  if (forward && stop > range.begin) range.count = (stop - range.begin - 1) / range.step + 1;
  if (!forward && stop < range.begin) range.count = (range.begin - stop - 1) / -range.step + 1;
  return range;
}

}  // namespace

List Interpreter::Iterate(const Value& value) {
  if (value.is_sequence()) {
    const Sequence& sequence = value.sequence();
    Step(static_cast<std::int64_t>(sequence.items.size() - sequence.position));
    List items(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.position),
               sequence.items.end());
    if (sequence.kind == SequenceKind::kGenerator) sequence.position = sequence.items.size();
    return items;
  }
  List items;
  if (value.is_undefined()) return items;
  if (value.is_dict()) {
    Step(static_cast<std::int64_t>(value.dict().size()));
    for (const auto& [key, item] : value.dict().items()) items.push_back(key);
    return items;
  }
  if (value.is_string()) {
    std::string_view rest = value.str();
    CheckAllocation(rest.size() * (sizeof(Value) + 96));
    while (!rest.empty()) {
      const std::size_t size = ReadUtf8Unit(rest).num_bytes;
      items.push_back(NewString(std::string(rest.substr(0, size))));
      rest.remove_prefix(size);
    }
    return items;
  }
  FailRuntime("'" + std::string(TypeName(value)) + "' object is not iterable");
}

std::int64_t Interpreter::Length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) {
    Step(static_cast<std::int64_t>(value.str().size() / 64));
    return static_cast<std::int64_t>(CountCodePoints(value.str()));
  }
  if (value.is_dict()) return static_cast<std::int64_t>(value.dict().size());
  if (value.is_sequence() && value.sequence().kind != SequenceKind::kGenerator) {
    return static_cast<std::int64_t>(value.items().size());
  }
  if (value.is_object()) {
    if (auto* loop = dynamic_cast<LoopObject*>(&value.object())) {
      return static_cast<std::int64_t>(loop->items().size());
    }
  }
  FailRuntime("object of type '" + std::string(TypeName(value)) + "' has no len()");
}

std::string Interpreter::Print(const Value& value) const {
  return ToString(value, limits_.max_output_bytes);
}

Value Interpreter::GetAttribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) FailUndefined(object);
  if (object.is_object()) {
    if (std::optional<Value> value = object.object().GetAttribute(*this, name)) return *value;
    return MissingAttribute(object, name);
  }
  if (const Builtin* method = FindMethod(object, name)) {
    return Value::FromObject(std::make_shared<FunctionObject>(*method, object));
  }
  if (object.is_sequence()) {
    const Sequence& sequence = object.sequence();
    for (std::size_t i = 0; i < sequence.field_names.size(); ++i) {
      if (sequence.field_names[i] == name) return sequence.items[i];
    }
  }
  if (object.is_dict()) {
    if (const Value* value = object.dict().Find(name)) return *value;
  }
  return MissingAttribute(object, name);
}

Value Interpreter::GetItem(const Value& object, const Value& key) {
  if (object.is_undefined()) FailUndefined(object);
  if (object.is_dict()) {
    if (const Value* value = object.dict().Find(key)) return *value;
  } else if (key.is_int() || key.is_bool()) {
    std::int64_t index = key.as_int();
    const bool indexable = object.is_sequence() &&
                           object.sequence().kind != SequenceKind::kGenerator &&
                           object.sequence().kind != SequenceKind::kDictView;
    if (indexable) {
      const auto size = static_cast<std::int64_t>(object.items().size());
      if (index < 0) index += size;
      if (index >= 0 && index < size) return object.items()[static_cast<std::size_t>(index)];
    } else if (object.is_string()) {
      const std::string_view text = object.str();
      Step(static_cast<std::int64_t>(text.size() / 64));
      if (index < 0) index += static_cast<std::int64_t>(CountCodePoints(text));
      for (std::size_t at = 0; index >= 0 && at < text.size(); --index) {
        const std::size_t size = ReadUtf8Unit(text.substr(at)).num_bytes;
        if (index == 0) return NewString(std::string(text.substr(at, size)));
        at += size;
      }
    }
  }
  if (key.is_string()) {
    // As in Jinja, a subscript that is no key may be an attribute.
    if (!object.is_dict() || FindDictMethod(key.str()) != nullptr) {
      return GetAttribute(object, key.str());
    }
    return MissingAttribute(object, key.str());
  }
  return Value::Undefined(DescribeType(object) + " has no element " + Repr(key));
}

Value Interpreter::GetPath(const Value& object, const Value& path) {
  if (!path.is_string()) return GetItem(object, path);
  Value value = object;
  std::string_view rest = path.str();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    std::int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && part[0] != '-' && parsed.ec == std::errc() &&
                          parsed.ptr == part.data() + part.size();
    value = GetItem(value, is_index ? Value::Int(index) : NewString(std::string(part)));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value Interpreter::CallBuiltin(const Builtin& builtin, const Value& self,
                               const CallArguments& arguments) {
  if (self.is_string()) Step(static_cast<std::int64_t>(self.str().size() / 64));
  return builtin.run(*this, self, Bind(builtin, arguments));
}

Value Interpreter::Call(const Value& callee, const CallArguments& arguments) {
  if (callee.is_undefined()) FailUndefined(callee);
  if (!callee.is_object() || !callee.object().is_callable()) {
    FailRuntime("'" + std::string(TypeName(callee)) + "' object is not callable");
  }
  const Value keep_alive = callee;  // the call may drop the last other reference
  return keep_alive.object().Call(*this, arguments);
}

Value Interpreter::Evaluate(const Expr& expr) {
  DepthGuard guard(*this);
  Step();
  try {
    return EvaluateInner(expr);
  } catch (Error& error) {
    error.SetPosition(expr.position);
    throw;
  }
}

Value Interpreter::EvaluateInner(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.value;
    case ExprKind::kName:
      return EvaluateName(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
    case ExprKind::kDict:
      return EvaluateCollection(expr);
    case ExprKind::kAttribute:
      return GetAttribute(Evaluate(*expr.left), expr.text);
    case ExprKind::kSubscript:
      return EvaluateSubscript(expr);
    case ExprKind::kCall:
      return EvaluateCall(expr);
    case ExprKind::kFilter:
      return EvaluateFilter(expr, nullptr);
    case ExprKind::kTest:
      return EvaluateTest(expr);
    case ExprKind::kUnary:
      return ApplyUnary(expr.op, Evaluate(*expr.left));
    case ExprKind::kBinary: {
      const Value left = Evaluate(*expr.left);
      return ApplyBinary(*this, expr.op, left, Evaluate(*expr.right));
    }
    case ExprKind::kConcat:
      return EvaluateConcat(expr);
    case ExprKind::kCompare:
      return EvaluateCompare(expr);
    case ExprKind::kAnd: {
      Value left = Evaluate(*expr.left);
      return IsTruthy(left) ? Evaluate(*expr.right) : left;
    }
    case ExprKind::kOr: {
      Value left = Evaluate(*expr.left);
      return IsTruthy(left) ? left : Evaluate(*expr.right);
    }
    case ExprKind::kNot:
      return Value::Bool(!IsTruthy(Evaluate(*expr.left)));
    case ExprKind::kConditional:
      return EvaluateConditional(expr);
    case ExprKind::kSlice:
      break;  // only within a subscript
  }
  FailRuntime("a slice outside a subscript");
}

Value Interpreter::EvaluateName(const Expr& expr) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [symbol, value] : scope->variables) {
      if (symbol == expr.symbol) return value;
    }
  }
  const Value& variable = variables_[static_cast<std::size_t>(expr.symbol)];
  if (!variable.is_undefined()) return variable;
  const std::string& name = ast_.names[static_cast<std::size_t>(expr.symbol)];
  if (const Builtin* function = FindGlobal(name)) {
    return Value::FromObject(std::make_shared<FunctionObject>(*function));
  }
  return Value::Undefined("'" + name + "' is undefined");
}

Value Interpreter::EvaluateCollection(const Expr& expr) {
  if (expr.kind == ExprKind::kDict) {
    Dict dict;
    for (std::size_t i = 0; i < expr.items.size(); i += 2) {
      Value key = Evaluate(*expr.items[i]);
      std::string hash_key;
      if (!HashKey(key, hash_key)) {
        FailRuntime("unhashable type: '" + std::string(TypeName(key)) + "'");
      }
      Step(static_cast<std::int64_t>(hash_key.size() / 64));
      dict.Set(std::move(key), Evaluate(*expr.items[i + 1]));
    }
    return NewDict(std::move(dict));
  }
  List items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) items.push_back(Evaluate(*item));
  return expr.kind == ExprKind::kList ? NewList(std::move(items)) : NewTuple(std::move(items));
}

Value Interpreter::EvaluateSubscript(const Expr& expr) {
  const Value object = Evaluate(*expr.left);
  if (expr.right->kind == ExprKind::kSlice) return Slice(object, *expr.right);
  return GetItem(object, Evaluate(*expr.right));
}

Value Interpreter::Slice(const Value& object, const Expr& slice) {
  Value parts[3];
  for (int i = 0; i < 3; ++i) {
    if (slice.items[i] != nullptr) parts[i] = Evaluate(*slice.items[i]);
  }
  if (object.is_undefined()) FailUndefined(object);
  if (object.is_string()) {
    const std::u32string text = ToCodePoints(object.str());
    const auto range =
        MakeSliceRange(parts[0], parts[1], parts[2], static_cast<std::int64_t>(text.size()));
    std::string out;
    for (std::int64_t i = 0; i < range.count; ++i) {
      AppendUtf8(text[static_cast<std::size_t>(range.begin + i * range.step)], out);
    }
    Step(static_cast<std::int64_t>(object.str().size() / 16));
    return NewString(std::move(out));
  }
  const bool sliceable = object.is_list() || object.is_tuple() ||
                         (object.is_sequence() && object.sequence().kind == SequenceKind::kRange);
  if (!sliceable) {
    FailRuntime("'" + std::string(TypeName(object)) + "' object cannot be sliced");
  }
  const List& items = object.items();
  const auto range =
      MakeSliceRange(parts[0], parts[1], parts[2], static_cast<std::int64_t>(items.size()));
  List out;
  out.reserve(static_cast<std::size_t>(range.count));
  for (std::int64_t i = 0; i < range.count; ++i) {
    out.push_back(items[static_cast<std::size_t>(range.begin + i * range.step)]);
  }
  return object.is_tuple() ? NewTuple(std::move(out)) : NewList(std::move(out));
}

CallArguments Interpreter::EvaluateArguments(const Arguments& arguments) {
  CallArguments out;
  for (const ExprPtr& item : arguments.positional) out.positional.push_back(Evaluate(*item));
  if (arguments.star != nullptr) {
    for (Value& item : Iterate(Evaluate(*arguments.star)))
      out.positional.push_back(std::move(item));
  }
  for (const auto& [name, item] : arguments.named) out.named.emplace_back(name, Evaluate(*item));
  if (arguments.double_star != nullptr) {
    const Value more = Evaluate(*arguments.double_star);
    if (!more.is_dict()) FailRuntime("argument after ** must be a mapping");
    for (const auto& [key, value] : more.dict().items()) {
      const std::string& name = StringArgument(key, "keywords");
      for (const auto& [other, old] : out.named) {
        if (other == name) FailRuntime("got multiple values for keyword argument '" + name + "'");
      }
      out.named.emplace_back(name, value);
    }
  }
  return out;
}

Value Interpreter::EvaluateCall(const Expr& expr) {
  const Value callee = Evaluate(*expr.left);
  return Call(callee, EvaluateArguments(*expr.arguments));
}

Value Interpreter::EvaluateFilter(const Expr& expr, const Value* block) {
  Value input;
  if (expr.left == nullptr) {
    input = block != nullptr ? *block : Value::Undefined();
  } else if (block != nullptr && expr.left->kind == ExprKind::kFilter) {
    DepthGuard guard(*this);
    input = EvaluateFilter(*expr.left, block);
  } else {
    input = Evaluate(*expr.left);
  }
  return CallBuiltin(*expr.builtin, input, EvaluateArguments(*expr.arguments));
}

Value Interpreter::ApplyFilters(const Expr& filters, const Value& block) {
  return EvaluateFilter(filters, &block);
}

Value Interpreter::EvaluateTest(const Expr& expr) {
  const Value value = Evaluate(*expr.left);
  return CallBuiltin(*expr.builtin, value, EvaluateArguments(*expr.arguments));
}

Value Interpreter::EvaluateConcat(const Expr& expr) {
  std::string out;
  for (const ExprPtr& item : expr.items) {
    const Value value = Evaluate(*item);
    if (value.is_string()) {
      out += value.str();
    } else {
      out += Print(value);
    }
    CheckAllocation(out.size());
  }
  return NewString(std::move(out));
}

Value Interpreter::EvaluateCompare(const Expr& expr) {
  Value left = Evaluate(*expr.left);
  for (const auto& [op, operand] : expr.comparisons) {
    Value right = Evaluate(*operand);
    if (!ApplyComparison(*this, op, left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateConditional(const Expr& expr) {
  if (IsTruthy(Evaluate(*expr.items[0]))) return Evaluate(*expr.left);
  if (expr.right != nullptr) return Evaluate(*expr.right);
  return Value::Undefined(
      "the inline if-expression evaluated to false and no else section was defined");
}

}  // namespace baton::text::jinja
