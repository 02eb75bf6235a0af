#include "router/api/json_fields.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/api/api_error.h"

namespace baton::router {

using text::jinja::Value;

std::string_view JsonTypeName(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return "null";
    case Value::Kind::kBool:
      return "a boolean";
    case Value::Kind::kInt:
    case Value::Kind::kBigInt:
      return "an integer";
    case Value::Kind::kFloat:
      return "a number";
    case Value::Kind::kString:
      return "a string";
    case Value::Kind::kSequence:
      return "an array";
    case Value::Kind::kDict:
    case Value::Kind::kObject:
      return "an object";
  }
  return "a value";
}

std::optional<std::int64_t> AsJsonInteger(const Value& value) {
  if (value.is_int()) return value.as_int();
  if (value.is_float()) {
    const double real = value.as_float();
    if (std::trunc(real) == real && std::abs(real) < 9e15) return static_cast<std::int64_t>(real);
  }
  return std::nullopt;
}

std::string JsonFields::PathOf(std::string_view name) const {
  if (path_.empty()) return std::string(name);
  return path_ + "." + std::string(name);
}

bool JsonFields::Fail(std::string_view name, std::string_view code, std::string_view message) {
  if (!status_.ok()) return false;
  const std::string path = PathOf(name);
  status_ = FieldError(path, code, "invalid '" + path + "': " + std::string(message));
  return false;
}

bool JsonFields::FailType(std::string_view name, std::string_view expected, const Value& got) {
  return Fail(name, "invalid_type",
              "expected " + std::string(expected) + ", got " + std::string(JsonTypeName(got)));
}

const Value* JsonFields::Find(std::string_view name) const {
  const Value* value = object_.Find(name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

bool JsonFields::Bool(std::string_view name, bool& out) {
  const Value* value = Find(name);
  if (value == nullptr) return false;
  if (!value->is_bool()) return FailType(name, "a boolean", *value);
  out = value->as_bool();
  return true;
}

bool JsonFields::Int(std::string_view name, std::int64_t min, std::int64_t max, std::int64_t& out) {
  const Value* value = Find(name);
  if (value == nullptr) return false;
  const std::optional<std::int64_t> number = AsJsonInteger(*value);
  if (!number.has_value()) {
    if (value->kind() != Value::Kind::kBigInt) return FailType(name, "an integer", *value);
  } else if (*number >= min && *number <= max) {
    out = *number;
    return true;
  }
  return Fail(name, "invalid_value",
              absl::StrFormat("expected an integer from %d to %d, got %s", min, max,
                              number.has_value() ? absl::StrCat(*number) : value->str()));
}

bool JsonFields::Int32(std::string_view name, std::int32_t min, std::int32_t max,
                       std::int32_t& out) {
  std::int64_t wide = 0;
  if (!Int(name, min, max, wide)) return false;
  out = static_cast<std::int32_t>(wide);
  return true;
}

bool JsonFields::Float(std::string_view name, double min, double max, float& out) {
  const Value* value = Find(name);
  if (value == nullptr) return false;
  double number = 0;
  if (value->is_float()) {
    number = value->as_float();
  } else if (value->is_int()) {
    number = static_cast<double>(value->as_int());
  } else {
    return FailType(name, "a number", *value);
  }
  if (!(number >= min && number <= max)) {
    return Fail(name, "invalid_value",
                absl::StrFormat("expected a number from %g to %g, got %g", min, max, number));
  }
  out = static_cast<float>(number);
  return true;
}

bool JsonFields::String(std::string_view name, std::string& out) {
  const Value* value = Find(name);
  if (value == nullptr) return false;
  if (!value->is_string()) return FailType(name, "a string", *value);
  out = value->str();
  return true;
}

bool JsonFields::Int32List(std::string_view name, std::int32_t min, std::int32_t max,
                           std::vector<std::int32_t>& out) {
  const text::jinja::List* list = Array(name);
  if (list == nullptr) return false;
  out.clear();
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::optional<std::int64_t> number = AsJsonInteger((*list)[i]);
    if (!number.has_value()) {
      return FailType(absl::StrFormat("%s[%d]", std::string(name), i), "an integer", (*list)[i]);
    }
    if (*number < min || *number > max) {
      return Fail(absl::StrFormat("%s[%d]", std::string(name), i), "invalid_value",
                  absl::StrFormat("expected an integer from %d to %d, got %d", min, max, *number));
    }
    out.push_back(static_cast<std::int32_t>(*number));
  }
  return true;
}

bool JsonFields::StringOrList(std::string_view name, std::vector<std::string>& out) {
  const Value* value = Find(name);
  if (value == nullptr) return false;
  out.clear();
  if (value->is_string()) {
    out.push_back(value->str());
    return true;
  }
  if (!value->is_list()) return FailType(name, "a string or an array of strings", *value);
  for (std::size_t i = 0; i < value->items().size(); ++i) {
    const Value& item = value->items()[i];
    if (!item.is_string()) {
      return FailType(absl::StrFormat("%s[%d]", std::string(name), i), "a string", item);
    }
    out.push_back(item.str());
  }
  return true;
}

const text::jinja::Dict* JsonFields::Object(std::string_view name) {
  const Value* value = Find(name);
  if (value == nullptr) return nullptr;
  if (value->is_dict()) return &value->dict();
  FailType(name, "an object", *value);
  return nullptr;
}

const text::jinja::List* JsonFields::Array(std::string_view name) {
  const Value* value = Find(name);
  if (value == nullptr) return nullptr;
  if (value->is_list()) return &value->items();
  FailType(name, "an array", *value);
  return nullptr;
}

}  // namespace baton::router
