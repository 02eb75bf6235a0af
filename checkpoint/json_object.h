#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::checkpoint {

// A JSON object with typed access, for the small files of a Hugging Face directory. A getter
// answers empty for a key that is missing or null, and kInvalidArgument, naming the key, for a
// value of another type. Cheap to copy: objects share their text's tree. Thread-safe.
class JsonObject {
 public:
  // kInvalidArgument with line and column when `text` is not a JSON object, or is nested deeper
  // than 64 levels.
  static absl::StatusOr<JsonObject> Parse(std::string_view text);

  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::int64_t>> Integer(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;  // integers too
  absl::StatusOr<std::optional<std::string>> String(std::string_view key) const;
  absl::StatusOr<std::optional<JsonObject>> Object(std::string_view key) const;
  // An array of strings, objects or numbers.
  absl::StatusOr<std::optional<std::vector<std::string>>> Strings(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<JsonObject>>> Objects(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<double>>> Numbers(std::string_view key) const;
  // One integer or an array of them.
  absl::StatusOr<std::vector<std::int64_t>> IntegerOrList(std::string_view key) const;

  bool Has(std::string_view key) const;  // null counts
  bool IsArray(std::string_view key) const;
  bool IsString(std::string_view key) const;
  bool IsObject(std::string_view key) const;
  // The value as compact JSON; "null" when missing.
  std::string Text(std::string_view key) const;
  std::vector<std::string> Keys() const;

 private:
  explicit JsonObject(std::shared_ptr<const nlohmann::json> value) : value_(std::move(value)) {}
  const nlohmann::json* Lookup(std::string_view key) const;  // nullptr: missing or null
  JsonObject Share(const nlohmann::json& part) const;

  std::shared_ptr<const nlohmann::json> value_;  // an object
};

}  // namespace baton::checkpoint
