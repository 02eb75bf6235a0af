#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/error.h"
#include "text/jinja/python_format.h"

namespace baton::text::jinja {
namespace {

constexpr std::size_t kMaxHashKeyBytes = std::size_t{1} << 20;
constexpr std::int64_t kMaxCompared = 10'000'000;
constexpr std::size_t kIndexFrom = 9;  // smaller dicts are searched one by one

int DepthOf(const List& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

// A number's hash key: equal numbers have equal keys, whatever their type.
std::string NumberKey(const Value& value) {
  if (value.kind() == Value::Kind::kBigInt) return "n" + value.str();
  if (!value.is_float()) return "n" + std::to_string(value.as_int());
  const double real = value.as_float();
  if (real == std::floor(real) && std::fabs(real) < 9.2e18) {
    return "n" + std::to_string(static_cast<std::int64_t>(real));
  }
  return "f" + FloatRepr(real);
}

bool NumbersEqual(const Value& a, const Value& b) {
  const bool big_a = a.kind() == Value::Kind::kBigInt;
  const bool big_b = b.kind() == Value::Kind::kBigInt;
  if (big_a || big_b) return big_a && big_b && a.str() == b.str();
  if (!a.is_float() && !b.is_float()) return a.as_int() == b.as_int();
  // An 80-bit float holds every int64 and every double exactly.
  const auto exact = [](const Value& v) {
    return v.is_float() ? static_cast<long double>(v.as_float())
                        : static_cast<long double>(v.as_int());
  };
  return exact(a) == exact(b);
}

// Compares two values, counting. Values that share their parts may stand for trees of a size that
// is exponential in what was built, so that the count needs a bound of its own.
class Comparison {
 public:
  bool Equal(const Value& a, const Value& b) {
    if (++count_ > kMaxCompared) throw Error(ErrorKind::kLimit, "values too large to compare");
    if (a.is_number() && b.is_number()) return NumbersEqual(a, b);
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
      case Value::Kind::kString:
        return a.SamePayload(b) || a.str() == b.str();
      case Value::Kind::kSequence:
        return a.SamePayload(b) || EqualSequences(a.sequence(), b.sequence());
      case Value::Kind::kDict:
        return a.SamePayload(b) || EqualDicts(a.dict(), b.dict());
      case Value::Kind::kObject:
        return a.SamePayload(b);
      default:
        return true;  // None and undefined
    }
  }
  std::int64_t count() const { return count_; }

 private:
  bool EqualSequences(const Sequence& a, const Sequence& b) {
    if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
    for (std::size_t i = 0; i < a.items.size(); ++i) {
      if (!Equal(a.items[i], b.items[i])) return false;
    }
    return true;
  }

  bool EqualDicts(const Dict& a, const Dict& b) {
    if (a.size() != b.size()) return false;
    for (const auto& [key, value] : a.items()) {
      const Value* other = b.Find(key);
      if (other == nullptr || !Equal(value, *other)) return false;
    }
    return true;
  }

  std::int64_t count_ = 0;
};

}  // namespace

Value Value::Undefined(std::string hint) {
  Value value(Kind::kUndefined);
  if (!hint.empty()) value.data_ = std::make_shared<const std::string>(std::move(hint));
  return value;
}

Value Value::Bool(bool boolean) {
  Value value(Kind::kBool);
  value.number_.boolean = boolean;
  return value;
}

Value Value::Int(std::int64_t integer) {
  Value value(Kind::kInt);
  value.number_.integer = integer;
  return value;
}

Value Value::BigInt(std::string digits) {
  Value value(Kind::kBigInt);
  value.data_ = std::make_shared<const std::string>(std::move(digits));
  return value;
}

Value Value::Float(double real) {
  Value value(Kind::kFloat);
  value.number_.real = real;
  return value;
}

Value Value::String(std::string text) {
  return ShareString(std::make_shared<const std::string>(std::move(text)));
}

Value Value::MakeList(List items) {
  Sequence sequence;
  sequence.items = std::move(items);
  return MakeSequence(std::move(sequence));
}

Value Value::MakeTuple(List items) {
  Sequence sequence;
  sequence.kind = SequenceKind::kTuple;
  sequence.items = std::move(items);
  return MakeSequence(std::move(sequence));
}

Value Value::MakeSequence(Sequence sequence) {
  sequence.depth = DepthOf(sequence.items);
  return ShareSequence(std::make_shared<const Sequence>(std::move(sequence)));
}

Value Value::MakeDict(Dict dict) {
  return ShareDict(std::make_shared<const Dict>(std::move(dict)));
}

Value Value::FromObject(std::shared_ptr<Object> object) {
  Value value(Kind::kObject);
  value.data_ = std::shared_ptr<const void>(object, object.get());
  return value;
}

Value Value::ShareString(std::shared_ptr<const std::string> text) {
  Value value(Kind::kString);
  value.data_ = std::move(text);
  return value;
}

Value Value::ShareSequence(std::shared_ptr<const Sequence> sequence) {
  Value value(Kind::kSequence);
  value.data_ = std::move(sequence);
  return value;
}

Value Value::ShareDict(std::shared_ptr<const Dict> dict) {
  Value value(Kind::kDict);
  value.data_ = std::move(dict);
  return value;
}

std::string_view Value::hint() const {
  return is_undefined() && data_ != nullptr ? std::string_view(str()) : std::string_view();
}

int Value::depth() const {
  if (is_sequence()) return sequence().depth;
  if (is_dict()) return dict().depth();
  return is_object() ? 1 : 0;
}

void Dict::Set(Value key, Value value) {
  depth_ = std::max({depth_, value.depth() + 1, key.depth() + 1});
  std::string hash_key;
  HashKey(key, hash_key);
  if (const Value* old = FindHashed(hash_key)) {
    const_cast<Value&>(*old) = std::move(value);
    return;
  }
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() < kIndexFrom) return;
  if (index_.empty()) {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      std::string other;
      HashKey(items_[i].first, other);
      index_.emplace(std::move(other), i);
    }
  } else {
    index_.emplace(std::move(hash_key), items_.size() - 1);
  }
}

const Value* Dict::FindHashed(std::string_view hash_key) const {
  if (!index_.empty()) {
    const auto it = index_.find(std::string(hash_key));
    return it == index_.end() ? nullptr : &items_[it->second].second;
  }
  std::string other;
  for (const auto& [key, value] : items_) {
    other.clear();
    HashKey(key, other);
    if (other == hash_key) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  if (key.is_string()) return Find(key.str());
  std::string hash_key;
  return HashKey(key, hash_key) ? FindHashed(hash_key) : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  if (!index_.empty()) return FindHashed("s" + std::string(key));
  for (const auto& [candidate, value] : items_) {
    if (candidate.is_string() && candidate.str() == key) return &value;
  }
  return nullptr;
}

bool IsTruthy(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return false;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
      return value.as_int() != 0;
    case Value::Kind::kFloat:
      return value.as_float() != 0.0;
    case Value::Kind::kString:
      return !value.str().empty();
    case Value::Kind::kSequence:
      return value.sequence().kind == SequenceKind::kGenerator || !value.items().empty();
    case Value::Kind::kDict:
      return !value.dict().empty();
    case Value::Kind::kBigInt:
    case Value::Kind::kObject:
      return true;
  }
  return true;
}

bool Equals(const Value& a, const Value& b, std::int64_t* work) {
  Comparison comparison;
  const bool equal = comparison.Equal(a, b);
  if (work != nullptr) *work += comparison.count();
  return equal;
}

bool HashKey(const Value& value, std::string& key) {
  if (key.size() > kMaxHashKeyBytes) return false;
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      key += 'u';
      return true;
    case Value::Kind::kNone:
      key += '0';
      return true;
    case Value::Kind::kString:
      key += 's';
      key += value.str();
      return true;
    case Value::Kind::kSequence:
      if (!value.is_tuple()) return false;
      key += '(';
      for (const Value& item : value.items()) {
        std::string inner;
        if (!HashKey(item, inner)) return false;
        key += std::to_string(inner.size()) + ':' + inner;
        if (key.size() > kMaxHashKeyBytes) return false;
      }
      key += ')';
      return true;
    case Value::Kind::kDict:
      return false;
    case Value::Kind::kObject:
      key += 'o' + std::to_string(reinterpret_cast<std::uintptr_t>(&value.object()));
      return true;
    default:
      key += NumberKey(value);
      return true;
  }
}

}  // namespace baton::text::jinja
