#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/limits.h"
#include "text/jinja/objects.h"
#include "text/jinja/python_format.h"
#include "text/jinja/strftime.h"

namespace baton::text::jinja {
namespace {

std::int64_t RangeLength(std::int64_t begin, std::int64_t end, std::int64_t step) {
  if (step > 0 ? begin >= end : begin <= end) return 0;
  // Unsigned, since the distance of two int64 may take 64 bits.
  const auto from = static_cast<std::uint64_t>(begin);
  const auto to = static_cast<std::uint64_t>(end);
  const auto by = static_cast<std::uint64_t>(step);
  const std::uint64_t count = step > 0 ? (to - from - 1) / by + 1 : (from - to - 1) / (~by + 1) + 1;
  return static_cast<std::int64_t>(std::min<std::uint64_t>(count, kMaxRange + 1));
}

Value Range(Interpreter& interpreter, const Value&, const BoundArguments& arguments) {
  const auto& numbers = arguments.rest().positional;
  if (numbers.empty() || numbers.size() > 3 || !arguments.rest().named.empty()) {
    FailRuntime("range expected 1 to 3 arguments");
  }
  std::array<std::int64_t, 3> bounds = {0, 0, 1};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    bounds[numbers.size() == 1 ? 1 : i] = IntArgument(numbers[i], "range() arguments");
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) FailRuntime("range() arg 3 must not be zero");
  const std::int64_t length = RangeLength(begin, end, step);
  if (length > kMaxRange) {
    throw Error(ErrorKind::kSecurity, "Range too big. The sandbox blocks ranges larger than " +
                                          std::to_string(kMaxRange));
  }
  Sequence sequence;
  sequence.kind = SequenceKind::kRange;
  sequence.repr = "range(" + std::to_string(begin) + ", " + std::to_string(end) +
                  (step == 1 ? "" : ", " + std::to_string(step)) + ")";
  sequence.items.reserve(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < length; ++i) sequence.items.push_back(Value::Int(begin + i * step));
  return interpreter.NewSequence(std::move(sequence));
}

// The arguments of dict() and namespace(): a mapping or pairs, and keywords.
Dict CollectEntries(Interpreter& interpreter, const BoundArguments& arguments) {
  Dict dict;
  for (const Value& source : arguments.rest().positional) {
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().items()) dict.Set(key, value);
      continue;
    }
    for (const Value& pair : interpreter.Iterate(source)) {
      List entry = interpreter.Iterate(pair);
      std::string key;
      if (entry.size() != 2 || !HashKey(entry[0], key)) {
        FailRuntime("expected pairs of a hashable key and a value");
      }
      dict.Set(std::move(entry[0]), std::move(entry[1]));
    }
  }
  for (const auto& [key, value] : arguments.rest().named) dict.Set(key, value);
  return dict;
}

Value MakeDict(Interpreter& interpreter, const Value&, const BoundArguments& arguments) {
  if (arguments.rest().positional.size() > 1) FailRuntime("dict expected at most 1 argument");
  return interpreter.NewDict(CollectEntries(interpreter, arguments));
}

Value MakeNamespace(Interpreter& interpreter, const Value&, const BoundArguments& arguments) {
  std::vector<std::pair<std::string, Value>> attributes;
  const Dict entries = CollectEntries(interpreter, arguments);
  for (const auto& [key, value] : entries.items()) {
    attributes.emplace_back(StringArgument(key, "a namespace's attribute"), value);
  }
  return interpreter.NewNamespace(std::move(attributes));
}

Value RaiseException(Interpreter&, const Value&, const BoundArguments& arguments) {
  throw Error(ErrorKind::kRaised, ToString(arguments[0]));
}

Value StrftimeNow(Interpreter& interpreter, const Value&, const BoundArguments& arguments) {
  return interpreter.NewString(Strftime(StringArgument(arguments[0], "strftime_now's format"),
                                        interpreter.now(), interpreter.time_zone()));
}

Value MakeCycler(Interpreter&, const Value&, const BoundArguments& arguments) {
  if (arguments.rest().positional.empty()) FailRuntime("at least one item has to be provided");
  return Value::FromObject(std::make_shared<CyclerObject>(arguments.rest().positional));
}

Value MakeJoiner(Interpreter& interpreter, const Value&, const BoundArguments& arguments) {
  return Value::FromObject(
      std::make_shared<JoinerObject>(arguments.Or(0, interpreter.NewString(", "))));
}

}  // namespace

const Builtin* FindGlobal(std::string_view name) {
  static const std::array<Builtin, 7> globals = {{
      {"range", 0, {}, true, Range},
      {"dict", 0, {}, true, MakeDict},
      {"namespace", 0, {}, true, MakeNamespace},
      {"raise_exception", 1, {"message"}, false, RaiseException},
      {"strftime_now", 1, {"format"}, false, StrftimeNow},
      {"cycler", 0, {}, true, MakeCycler},
      {"joiner", 0, {"sep"}, false, MakeJoiner},
  }};
  for (const Builtin& builtin : globals) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace baton::text::jinja
