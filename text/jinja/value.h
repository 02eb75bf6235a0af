#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::text::jinja {

class Dict;
class Object;
class Value;
using List = std::vector<Value>;

// The sequence types of Python that a template meets. All are held as a vector; they differ in what
// they print as and in what may be done with them.
enum class SequenceKind : std::uint8_t {
  kList,
  kTuple,
  kRange,      // indexable, prints as range(0, 3)
  kDictView,   // keys(), values(), items(): sized but not indexable
  kGenerator,  // result of map, select, ...: can be walked through once
};

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  List items;
  std::string repr;                      // of a range, view or generator: what it prints as
  std::vector<std::string> field_names;  // of a named tuple (groupby), else empty
  mutable std::size_t position = 0;      // of a generator: items before it are used up
  int depth = 1;                         // 1 + the deepest item's; see kMaxValueDepth
};

// A value of the template language: a small handle, cheap to copy, its payload shared and immutable
// (except for namespaces, which belong to one run). It follows Python: 1 and 1.0 are equal but
// print differently, dicts keep insertion order. Const access is thread-safe for values made of
// JSON.
class Value {
 public:
  enum class Kind : std::uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kBigInt,  // an integer beyond 64 bits, as decimal text: printed and compared, not computed with
    kFloat,
    kString,  // UTF-8
    kSequence,
    kDict,
    kObject,  // functions, macros, methods, loops, namespaces
  };

  Value() : Value(Kind::kNone) {}                 // None
  static Value Undefined(std::string hint = {});  // `hint` names what was missing
  static Value None() { return Value(); }
  static Value Bool(bool value);
  static Value Int(std::int64_t value);
  static Value BigInt(std::string digits);
  static Value Float(double value);
  static Value String(std::string text);
  static Value MakeList(List items);
  static Value MakeTuple(List items);
  static Value MakeSequence(Sequence sequence);
  static Value MakeDict(Dict dict);
  static Value FromObject(std::shared_ptr<Object> object);
  // Shares a payload that the caller allocated (and may account for in its deleter).
  static Value ShareString(std::shared_ptr<const std::string> text);
  static Value ShareSequence(std::shared_ptr<const Sequence> sequence);
  static Value ShareDict(std::shared_ptr<const Dict> dict);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kSequence; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_object() const { return kind_ == Kind::kObject; }
  bool is_list() const { return is_sequence() && sequence().kind == SequenceKind::kList; }
  bool is_tuple() const { return is_sequence() && sequence().kind == SequenceKind::kTuple; }
  bool is_integral() const { return is_int() || is_bool() || kind_ == Kind::kBigInt; }
  bool is_number() const { return is_integral() || is_float(); }

  // Each requires its kind.
  bool as_bool() const { return number_.boolean; }
  std::int64_t as_int() const { return is_bool() ? number_.boolean : number_.integer; }  // or bool
  double as_float() const { return number_.real; }
  const std::string& str() const { return *static_cast<const std::string*>(data_.get()); }
  const Sequence& sequence() const { return *static_cast<const Sequence*>(data_.get()); }
  const List& items() const { return sequence().items; }
  const Dict& dict() const { return *static_cast<const Dict*>(data_.get()); }
  Object& object() const { return *static_cast<Object*>(const_cast<void*>(data_.get())); }
  // The name that was missing, of an undefined value; may be empty.
  std::string_view hint() const;

  bool SamePayload(const Value& other) const { return data_ == other.data_; }
  // Nesting depth: 0 for scalars, 1 for a flat list.
  int depth() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_;
  union {
    bool boolean;
    std::int64_t integer;
    double real;
  } number_ = {.integer = 0};
  std::shared_ptr<const void> data_;
};

// Deeper values are refused, so that walking and freeing one cannot exhaust the stack.
inline constexpr int kMaxValueDepth = 200;

// A dict in insertion order. Keys are any hashable value and are equal as in Python (1 == 1.0 ==
// True). Lookup is O(1).
class Dict {
 public:
  // Replaces the value of an equal key, in its old place, or appends.
  void Set(Value key, Value value);
  void Set(std::string key, Value value) { Set(Value::String(std::move(key)), std::move(value)); }
  // nullptr when absent (or not hashable). Valid until the next Set.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  int depth() const { return depth_; }

 private:
  const Value* FindHashed(std::string_view key) const;

  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<std::string, std::size_t> index_;  // by hash key
  int depth_ = 1;
};

// Python's bool(value).
bool IsTruthy(const Value& value);

// Python's ==. Undefined equals only undefined. Adds the number of values looked at to `work`, if
// given. Throws Error(kLimit) for values so interwoven that a comparison would hardly end.
bool Equals(const Value& a, const Value& b, std::int64_t* work = nullptr);

// A string that two values share exactly when they are equal as dict keys; false when `value` is
// not hashable (a list or dict).
bool HashKey(const Value& value, std::string& key);

// Parses one JSON text. Integers stay integers of any size, keys keep their order, of a repeated
// key the last value counts. kInvalidArgument on anything else or deeper than 128 levels.
absl::StatusOr<Value> ParseJson(std::string_view json);

// Python's json.dumps with ensure_ascii=False. kInvalidArgument for what JSON cannot hold.
absl::StatusOr<std::string> DumpJson(const Value& value);

}  // namespace baton::text::jinja
