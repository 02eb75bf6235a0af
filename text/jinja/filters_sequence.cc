// Filters of lists, dicts and other things to walk through.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_format.h"
#include "text/jinja/unicode.h"

namespace baton::text::jinja {
namespace {

// For comparisons without regard to case: strings are lowered, other values stay.
Value IgnoreCase(Interpreter& interpreter, const Value& value) {
  return value.is_string() ? interpreter.NewString(ToLower(value.str())) : value;
}

// Sorts stably by `keys`, one for each item.
List SortBy(Interpreter& interpreter, const List& items, const List& keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // A comparison throws for types without an order; std::stable_sort may be left that way.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    std::int64_t work = 1;
    const bool less =
        reverse ? LessThan(keys[b], keys[a], &work) : LessThan(keys[a], keys[b], &work);
    interpreter.Step(work);
    return less;
  });
  List sorted;
  for (const std::size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

Value LengthFilter(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return Value::Int(interpreter.Length(self));
}

Value ToList(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return interpreter.NewList(interpreter.Iterate(self));
}

Value First(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  if (self.is_sequence()) {
    const Sequence& sequence = self.sequence();
    if (sequence.position < sequence.items.size()) {
      const Value item = sequence.items[sequence.position];
      if (sequence.kind == SequenceKind::kGenerator) ++sequence.position;
      return item;
    }
  }
  const List items = interpreter.Iterate(self);
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items.front();
}

Value Last(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  if (self.is_sequence() && self.sequence().kind == SequenceKind::kGenerator) {
    FailRuntime("'generator' object is not reversible");
  }
  const List items = interpreter.Iterate(self);
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

Value Reverse(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  if (self.is_string()) {
    std::u32string text = ToCodePoints(self.str());
    std::reverse(text.begin(), text.end());
    return interpreter.NewString(FromCodePoints(text));
  }
  List items = interpreter.Iterate(self);
  std::reverse(items.begin(), items.end());
  return interpreter.NewGenerator(std::move(items));
}

Value Join(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::string separator = arguments.Has(0) ? interpreter.Print(arguments[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& item : interpreter.Iterate(self)) {
    if (!first) out += separator;
    first = false;
    const bool by_attribute = arguments.Has(1) && !arguments[1].is_none();
    out += interpreter.Print(by_attribute ? interpreter.GetPath(item, arguments[1]) : item);
    interpreter.CheckAllocation(out.size());
  }
  return interpreter.NewString(std::move(out));
}

Value Sort(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const bool reverse = arguments.Has(0) && IsTruthy(arguments[0]);
  const bool case_sensitive = arguments.Has(1) && IsTruthy(arguments[1]);
  const bool by_attribute = arguments.Has(2) && !arguments[2].is_none();
  const List items = interpreter.Iterate(self);
  List keys;
  for (const Value& item : items) {
    List parts;
    if (by_attribute) {
      std::string_view rest = arguments[2].is_string() ? arguments[2].str() : std::string_view();
      if (!arguments[2].is_string()) parts.push_back(interpreter.GetPath(item, arguments[2]));
      while (!rest.empty()) {  // "a,b" sorts by a, then by b
        const std::size_t comma = rest.find(',');
        parts.push_back(
            interpreter.GetPath(item, interpreter.NewString(std::string(rest.substr(0, comma)))));
        rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
      }
    } else {
      parts.push_back(item);
    }
    if (!case_sensitive) {
      for (Value& part : parts) part = IgnoreCase(interpreter, part);
    }
    keys.push_back(parts.size() == 1 ? parts[0] : interpreter.NewList(std::move(parts)));
  }
  return interpreter.NewList(SortBy(interpreter, items, keys, reverse));
}

Value DictSort(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  if (!self.is_dict()) FailRuntime("dictsort needs a dict, not " + std::string(TypeName(self)));
  const bool case_sensitive = arguments.Has(0) && IsTruthy(arguments[0]);
  const std::string by = arguments.Has(1) ? StringArgument(arguments[1], "by") : "key";
  const bool reverse = arguments.Has(2) && IsTruthy(arguments[2]);
  if (by != "key" && by != "value") FailRuntime("You can only sort by either \"key\" or \"value\"");
  List items;
  List keys;
  for (const auto& [key, value] : self.dict().items()) {
    const Value& sort_key = by == "key" ? key : value;
    keys.push_back(case_sensitive ? sort_key : IgnoreCase(interpreter, sort_key));
    items.push_back(interpreter.NewTuple({key, value}));
  }
  return interpreter.NewList(SortBy(interpreter, items, keys, reverse));
}

Value Items(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  List items;
  if (!self.is_undefined()) {
    if (!self.is_dict()) FailRuntime("Can only get item pairs from a mapping.");
    for (const auto& [key, value] : self.dict().items()) {
      items.push_back(interpreter.NewTuple({key, value}));
    }
  }
  return interpreter.NewGenerator(std::move(items));
}

Value Map(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  CallArguments rest = arguments.rest();
  List out;
  const auto named = [&](std::string_view name) -> const Value* {
    for (const auto& [key, value] : rest.named) {
      if (key == name) return &value;
    }
    return nullptr;
  };
  if (rest.positional.empty()) {
    const Value* attribute = named("attribute");
    const Value* fallback = named("default");
    if (attribute == nullptr || rest.named.size() > (fallback != nullptr ? 2u : 1u)) {
      FailRuntime("map requires a filter argument");
    }
    for (const Value& item : interpreter.Iterate(self)) {
      Value value = interpreter.GetPath(item, *attribute);
      out.push_back(value.is_undefined() && fallback != nullptr ? *fallback : std::move(value));
    }
    return interpreter.NewGenerator(std::move(out));
  }
  const std::string name = StringArgument(rest.positional.front(), "map's filter");
  const Builtin* filter = FindFilter(name);
  if (filter == nullptr) FailRuntime("No filter named '" + name + "'.");
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : interpreter.Iterate(self)) {
    out.push_back(interpreter.CallBuiltin(*filter, item, rest));
  }
  return interpreter.NewGenerator(std::move(out));
}

// select, reject, selectattr and rejectattr: keeps the items whose test (of the attribute) comes
// out as `kKeep`; without a test, whether they are true.
template <bool kByAttribute, bool kKeep>
Value Select(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  CallArguments rest = arguments.rest();
  Value attribute;
  if (kByAttribute) {
    if (rest.positional.empty()) FailRuntime("Missing parameter for attribute name");
    attribute = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  }
  const Builtin* test = nullptr;
  if (!rest.positional.empty()) {
    const std::string name = StringArgument(rest.positional.front(), "a test's name");
    test = FindTest(name);
    if (test == nullptr) FailRuntime("No test named '" + name + "'.");
    rest.positional.erase(rest.positional.begin());
  }
  List kept;
  for (const Value& item : interpreter.Iterate(self)) {
    const Value subject = kByAttribute ? interpreter.GetPath(item, attribute) : item;
    const Value result = test == nullptr ? subject : interpreter.CallBuiltin(*test, subject, rest);
    if (IsTruthy(result) == kKeep) kept.push_back(item);
  }
  return interpreter.NewGenerator(std::move(kept));
}

Value Unique(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const bool case_sensitive = arguments.Has(0) && IsTruthy(arguments[0]);
  const bool by_attribute = arguments.Has(1) && !arguments[1].is_none();
  Dict seen;
  List out;
  for (const Value& item : interpreter.Iterate(self)) {
    Value key = by_attribute ? interpreter.GetPath(item, arguments[1]) : item;
    if (!case_sensitive) key = IgnoreCase(interpreter, key);
    std::string hash_key;
    if (!HashKey(key, hash_key))
      FailRuntime("unhashable type: '" + std::string(TypeName(key)) + "'");
    if (seen.Find(key) != nullptr) continue;
    seen.Set(key, Value::None());
    out.push_back(item);
  }
  return interpreter.NewGenerator(std::move(out));
}

Value GroupBy(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const bool case_sensitive = arguments.Has(2) && IsTruthy(arguments[2]);
  List items = interpreter.Iterate(self);
  List keys;
  List groupers;
  for (const Value& item : items) {
    Value key = interpreter.GetPath(item, arguments[0]);
    if (key.is_undefined() && arguments.Has(1)) key = arguments[1];
    groupers.push_back(key);
    keys.push_back(case_sensitive ? key : IgnoreCase(interpreter, key));
  }
  List indexes;
  for (std::size_t i = 0; i < items.size(); ++i) indexes.push_back(Value::Int(static_cast<int>(i)));
  const List order = SortBy(interpreter, indexes, keys, /*reverse=*/false);
  List groups;
  for (std::size_t i = 0; i < order.size();) {
    const auto first = static_cast<std::size_t>(order[i].as_int());
    List members;
    for (; i < order.size(); ++i) {
      const auto at = static_cast<std::size_t>(order[i].as_int());
      std::int64_t work = 0;
      const bool same = Equals(keys[at], keys[first], &work);
      interpreter.Step(work);
      if (!same) break;
      members.push_back(items[at]);
    }
    Sequence group;
    group.kind = SequenceKind::kTuple;
    group.items = {groupers[first], interpreter.NewList(std::move(members))};
    group.field_names = {"grouper", "list"};
    groups.push_back(interpreter.NewSequence(std::move(group)));
  }
  return interpreter.NewList(std::move(groups));
}

Value Batch(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::int64_t size = IntArgument(arguments[0], "linecount");
  if (size < 1) FailRuntime("linecount must be positive");
  List batches;
  List batch;
  for (const Value& item : interpreter.Iterate(self)) {
    if (static_cast<std::int64_t>(batch.size()) == size) {
      batches.push_back(interpreter.NewList(std::exchange(batch, {})));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (arguments.Has(1) && !arguments[1].is_none()) {
      interpreter.CheckAllocation(static_cast<std::size_t>(size) * sizeof(Value));
      batch.resize(static_cast<std::size_t>(size), arguments[1]);
    }
    batches.push_back(interpreter.NewList(std::move(batch)));
  }
  return interpreter.NewGenerator(std::move(batches));
}

Value SliceFilter(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::int64_t slices = IntArgument(arguments[0], "slices");
  if (slices < 1) FailRuntime("slices must be positive");
  interpreter.Step(slices);
  const List items = interpreter.Iterate(self);
  const auto length = static_cast<std::int64_t>(items.size());
  List out;
  auto at = items.begin();
  for (std::int64_t i = 0; i < slices; ++i) {
    const bool longer = i < length % slices;
    const auto end = at + length / slices + (longer ? 1 : 0);
    List slice(at, end);
    at = end;
    if (arguments.Has(1) && !arguments[1].is_none() && !longer && length % slices != 0) {
      slice.push_back(arguments[1]);
    }
    out.push_back(interpreter.NewList(std::move(slice)));
  }
  return interpreter.NewGenerator(std::move(out));
}

Value Sum(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  Value total = arguments.Or(1, Value::Int(0));
  const bool by_attribute = arguments.Has(0) && !arguments[0].is_none();
  if (total.is_string()) FailRuntime("sum() can't sum strings");
  for (const Value& item : interpreter.Iterate(self)) {
    const Value term = by_attribute ? interpreter.GetPath(item, arguments[0]) : item;
    total = ApplyBinary(interpreter, Operator::kAdd, total, term);
  }
  return total;
}

template <bool kMax>
Value Extreme(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const bool case_sensitive = arguments.Has(0) && IsTruthy(arguments[0]);
  const bool by_attribute = arguments.Has(1) && !arguments[1].is_none();
  const List items = interpreter.Iterate(self);
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items) {
    Value key = by_attribute ? interpreter.GetPath(item, arguments[1]) : item;
    if (!case_sensitive) key = IgnoreCase(interpreter, key);
    std::int64_t work = 0;
    const bool better =
        best == nullptr || (kMax ? LessThan(best_key, key, &work) : LessThan(key, best_key, &work));
    interpreter.Step(work);
    if (better) {
      best = &item;
      best_key = std::move(key);
    }
  }
  return *best;
}

const std::vector<Builtin>& Table() {
  static const std::vector<Builtin> table = {
      {"length", 0, {}, false, LengthFilter},
      {"count", 0, {}, false, LengthFilter},
      {"list", 0, {}, false, ToList},
      {"first", 0, {}, false, First},
      {"last", 0, {}, false, Last},
      {"reverse", 0, {}, false, Reverse},
      {"join", 0, {"d", "attribute"}, false, Join},
      {"sort", 0, {"reverse", "case_sensitive", "attribute"}, false, Sort},
      {"dictsort", 0, {"case_sensitive", "by", "reverse"}, false, DictSort},
      {"items", 0, {}, false, Items},
      {"map", 0, {}, true, Map},
      {"select", 0, {}, true, Select<false, true>},
      {"reject", 0, {}, true, Select<false, false>},
      {"selectattr", 0, {}, true, Select<true, true>},
      {"rejectattr", 0, {}, true, Select<true, false>},
      {"unique", 0, {"case_sensitive", "attribute"}, false, Unique},
      {"groupby", 1, {"attribute", "default", "case_sensitive"}, false, GroupBy},
      {"batch", 1, {"linecount", "fill_with"}, false, Batch},
      {"slice", 1, {"slices", "fill_with"}, false, SliceFilter},
      {"sum", 0, {"attribute", "start"}, false, Sum},
      {"max", 0, {"case_sensitive", "attribute"}, false, Extreme<true>},
      {"min", 0, {"case_sensitive", "attribute"}, false, Extreme<false>},
  };
  return table;
}

}  // namespace

std::span<const Builtin> SequenceFilters() { return Table(); }

}  // namespace baton::text::jinja
