#include "checkpoint/json_object.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

using nlohmann::json;

constexpr int kDeepest = 64;

absl::Status WrongType(std::string_view key, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("key ", Quoted(key), ": wrong type, must be ", expected));
}

// A whole number that fits 63 bits.
std::optional<std::int64_t> AsInteger(const json& value) {
  if (value.is_number_unsigned()) {
    const auto natural = value.get<std::uint64_t>();
    if (natural > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return std::nullopt;
    }
    return static_cast<std::int64_t>(natural);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return std::nullopt;
}

}  // namespace

absl::StatusOr<JsonObject> JsonObject::Parse(std::string_view text) {
  try {
    // Printing and comparing recurse, so depth is bounded here.
    const auto check_depth = [](int depth, json::parse_event_t, json&) {
      if (depth > kDeepest) throw std::runtime_error("nested too deeply");
      return true;
    };
    auto value = std::make_shared<const json>(json::parse(text, check_depth));
    if (!value->is_object()) return absl::InvalidArgumentError("not a JSON object");
    return JsonObject(std::move(value));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", error.what()));
  }
}

const json* JsonObject::Lookup(std::string_view key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

JsonObject JsonObject::Share(const json& part) const {
  return JsonObject(std::shared_ptr<const json>(value_, &part));
}

absl::StatusOr<std::optional<bool>> JsonObject::Bool(std::string_view key) const {
  const json* value = Lookup(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return WrongType(key, "a boolean");
  return std::optional(value->get<bool>());
}

absl::StatusOr<std::optional<std::int64_t>> JsonObject::Integer(std::string_view key) const {
  const json* value = Lookup(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  const std::optional<std::int64_t> integer = AsInteger(*value);
  if (!integer.has_value()) return WrongType(key, "an integer of at most 63 bits");
  return integer;
}

absl::StatusOr<std::optional<double>> JsonObject::Number(std::string_view key) const {
  const json* value = Lookup(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return WrongType(key, "a number");
  return std::optional(value->get<double>());
}

absl::StatusOr<std::optional<std::string>> JsonObject::String(std::string_view key) const {
  const json* value = Lookup(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return WrongType(key, "a string");
  return std::optional(value->get<std::string>());
}

absl::StatusOr<std::optional<JsonObject>> JsonObject::Object(std::string_view key) const {
  const json* value = Lookup(key);
  if (value == nullptr) return std::optional<JsonObject>();
  if (!value->is_object()) return WrongType(key, "an object");
  return std::optional(Share(*value));
}

absl::StatusOr<std::optional<std::vector<std::string>>> JsonObject::Strings(
    std::string_view key) const {
  const json* value = Lookup(key);
  if (value == nullptr) return std::optional<std::vector<std::string>>();
  if (!value->is_array()) return WrongType(key, "an array of strings");
  std::vector<std::string> strings;
  for (const json& item : *value) {
    if (!item.is_string()) return WrongType(key, "an array of strings");
    strings.push_back(item.get<std::string>());
  }
  return std::optional(std::move(strings));
}

absl::StatusOr<std::optional<std::vector<JsonObject>>> JsonObject::Objects(
    std::string_view key) const {
  const json* value = Lookup(key);
  if (value == nullptr) return std::optional<std::vector<JsonObject>>();
  if (!value->is_array()) return WrongType(key, "an array of objects");
  std::vector<JsonObject> objects;
  for (const json& item : *value) {
    if (!item.is_object()) return WrongType(key, "an array of objects");
    objects.push_back(Share(item));
  }
  return std::optional(std::move(objects));
}

absl::StatusOr<std::optional<std::vector<double>>> JsonObject::Numbers(std::string_view key) const {
  const json* value = Lookup(key);
  if (value == nullptr) return std::optional<std::vector<double>>();
  if (!value->is_array()) return WrongType(key, "an array of numbers");
  std::vector<double> numbers;
  for (const json& item : *value) {
    if (!item.is_number()) return WrongType(key, "an array of numbers");
    numbers.push_back(item.get<double>());
  }
  return std::optional(std::move(numbers));
}

absl::StatusOr<std::vector<std::int64_t>> JsonObject::IntegerOrList(std::string_view key) const {
  const json* value = Lookup(key);
  std::vector<std::int64_t> integers;
  if (value == nullptr) return integers;
  const json one = json::array({value->is_array() ? json() : *value});
  for (const json& item : value->is_array() ? *value : one) {
    const std::optional<std::int64_t> integer = AsInteger(item);
    if (!integer.has_value()) return WrongType(key, "an integer or an array of integers");
    integers.push_back(*integer);
  }
  return integers;
}

bool JsonObject::Has(std::string_view key) const { return value_->contains(key); }

bool JsonObject::IsArray(std::string_view key) const {
  const json* value = Lookup(key);
  return value != nullptr && value->is_array();
}

bool JsonObject::IsString(std::string_view key) const {
  const json* value = Lookup(key);
  return value != nullptr && value->is_string();
}

bool JsonObject::IsObject(std::string_view key) const {
  const json* value = Lookup(key);
  return value != nullptr && value->is_object();
}

std::string JsonObject::Text(std::string_view key) const {
  const json* value = Lookup(key);
  // Invalid UTF-8 cannot be in a parsed text, but replacing costs nothing and cannot throw.
  return value == nullptr ? "null" : value->dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> JsonObject::Keys() const {
  std::vector<std::string> keys;
  for (const auto& item : value_->items()) keys.push_back(item.key());
  return keys;
}

}  // namespace baton::checkpoint
