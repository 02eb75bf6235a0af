#include "checkpoint/gguf_metadata.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

absl::Status WrongType(std::string_view key, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("metadata ", Quoted(key), ": wrong type, must be ", expected));
}

// The value as a signed integer; empty for other types and beyond 63 bits.
std::optional<std::int64_t> AsInteger(const GgufValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  const auto* natural = std::get_if<std::uint64_t>(&value);
  if (natural == nullptr) return std::nullopt;
  if (*natural > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*natural);
}

std::optional<double> AsNumber(const GgufValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* natural = std::get_if<std::uint64_t>(&value)) {
    return static_cast<double>(*natural);
  }
  return std::nullopt;
}

}  // namespace

std::size_t GgufScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

GgufValue LoadGgufScalar(GgufType type, std::span<const std::byte> bytes, std::size_t index) {
  const auto load = [&]<typename T, typename Wide>(T value, Wide) {
    std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
    return GgufValue(static_cast<Wide>(value));
  };
  switch (type) {
    case GgufType::kUint8:
      return load(std::uint8_t{}, std::uint64_t{});
    case GgufType::kUint16:
      return load(std::uint16_t{}, std::uint64_t{});
    case GgufType::kUint32:
      return load(std::uint32_t{}, std::uint64_t{});
    case GgufType::kUint64:
      return load(std::uint64_t{}, std::uint64_t{});
    case GgufType::kInt8:
      return load(std::int8_t{}, std::int64_t{});
    case GgufType::kInt16:
      return load(std::int16_t{}, std::int64_t{});
    case GgufType::kInt32:
      return load(std::int32_t{}, std::int64_t{});
    case GgufType::kInt64:
      return load(std::int64_t{}, std::int64_t{});
    case GgufType::kFloat32:
      return load(float{}, double{});
    case GgufType::kFloat64:
      return load(double{}, double{});
    case GgufType::kBool:
      return bytes[index] != std::byte{0};
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return std::uint64_t{0};  // unreachable: callers pass fixed-size types only
}

bool GgufMetadata::Add(std::string_view key, GgufValue value) {
  return values_.emplace(std::string(key), std::move(value)).second;
}

const GgufValue* GgufMetadata::Lookup(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::optional<bool>> GgufMetadata::Bool(std::string_view key) const {
  const GgufValue* value = Lookup(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* flag = std::get_if<bool>(value)) return std::optional<bool>(*flag);
  return WrongType(key, "a boolean");
}

absl::StatusOr<std::optional<std::int64_t>> GgufMetadata::Integer(std::string_view key) const {
  const GgufValue* value = Lookup(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  const std::optional<std::int64_t> integer = AsInteger(*value);
  if (!integer.has_value()) return WrongType(key, "an integer of at most 63 bits");
  return integer;
}

absl::StatusOr<std::optional<double>> GgufMetadata::Number(std::string_view key) const {
  const GgufValue* value = Lookup(key);
  if (value == nullptr) return std::optional<double>();
  const std::optional<double> number = AsNumber(*value);
  if (!number.has_value()) return WrongType(key, "a number");
  return number;
}

absl::StatusOr<std::optional<std::string_view>> GgufMetadata::String(std::string_view key) const {
  const GgufValue* value = Lookup(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (const auto* text = std::get_if<std::string_view>(value)) return std::optional(*text);
  return WrongType(key, "a string");
}

absl::StatusOr<const std::vector<std::string_view>*> GgufMetadata::Strings(
    std::string_view key) const {
  const GgufValue* value = Lookup(key);
  const std::vector<std::string_view>* strings = nullptr;
  if (value == nullptr) return strings;
  const auto* array = std::get_if<GgufArray>(value);
  // An empty array may be written with any element type.
  if (array == nullptr || (array->element != GgufType::kString && array->count != 0)) {
    return WrongType(key, "an array of strings");
  }
  strings = &array->strings;
  return strings;
}

absl::StatusOr<std::optional<std::vector<std::int64_t>>> GgufMetadata::Integers(
    std::string_view key) const {
  const GgufValue* value = Lookup(key);
  if (value == nullptr) return std::optional<std::vector<std::int64_t>>();
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr) return WrongType(key, "an array of integers");
  std::vector<std::int64_t> integers;
  integers.reserve(array->count);
  for (std::size_t i = 0; i < array->count; ++i) {
    const std::optional<std::int64_t> integer =
        array->element == GgufType::kString
            ? std::nullopt
            : AsInteger(LoadGgufScalar(array->element, array->numbers, i));
    if (!integer.has_value()) return WrongType(key, "an array of integers");
    integers.push_back(*integer);
  }
  return std::optional(std::move(integers));
}

absl::StatusOr<std::optional<std::vector<bool>>> GgufMetadata::Flags(std::string_view key) const {
  const GgufValue* value = Lookup(key);
  if (value == nullptr) return std::optional<std::vector<bool>>();
  const auto* array = std::get_if<GgufArray>(value);
  std::vector<bool> flags;
  if (array != nullptr && array->element == GgufType::kBool) {
    for (const std::byte flag : array->numbers) flags.push_back(flag != std::byte{0});
    return std::optional(std::move(flags));
  }
  BATON_ASSIGN_OR_RETURN(const auto integers, Integers(key));
  for (const std::int64_t integer : *integers) flags.push_back(integer != 0);
  return std::optional(std::move(flags));
}

absl::StatusOr<std::optional<std::vector<float>>> GgufMetadata::Floats(std::string_view key) const {
  const GgufValue* value = Lookup(key);
  if (value == nullptr) return std::optional<std::vector<float>>();
  const auto* array = std::get_if<GgufArray>(value);
  const bool floats = array != nullptr && (array->element == GgufType::kFloat32 ||
                                           array->element == GgufType::kFloat64);
  if (!floats) return WrongType(key, "an array of floating-point numbers");
  std::vector<float> numbers;
  numbers.reserve(array->count);
  for (std::size_t i = 0; i < array->count; ++i) {
    const GgufValue number = LoadGgufScalar(array->element, array->numbers, i);
    numbers.push_back(static_cast<float>(std::get<double>(number)));
  }
  return std::optional(std::move(numbers));
}

}  // namespace baton::checkpoint
