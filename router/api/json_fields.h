#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "text/jinja/value.h"

namespace baton::router {

// Reads the typed fields of one JSON object and remembers the first mistake, so that a parser is a
// plain list of reads and one look at status(). A field that is absent or null leaves the target as
// it is; a wrong type or range is an error that names the field. Not thread-safe.
class JsonFields {
 public:
  // `path` stands before field names in errors: "messages[2]".
  explicit JsonFields(const text::jinja::Dict& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  // Each returns whether the field was present and good.
  bool Bool(std::string_view name, bool& out);
  bool Int(std::string_view name, std::int64_t min, std::int64_t max, std::int64_t& out);
  bool Int32(std::string_view name, std::int32_t min, std::int32_t max, std::int32_t& out);
  bool Float(std::string_view name, double min, double max, float& out);
  bool String(std::string_view name, std::string& out);
  // An array of integers.
  bool Int32List(std::string_view name, std::int32_t min, std::int32_t max,
                 std::vector<std::int32_t>& out);
  // A string or an array of strings.
  bool StringOrList(std::string_view name, std::vector<std::string>& out);

  // nullptr when absent or null.
  const text::jinja::Value* Find(std::string_view name) const;
  const text::jinja::Dict* Object(std::string_view name);
  const text::jinja::List* Array(std::string_view name);

  // Remembers an error about `name` unless there is one already. Always returns false.
  bool Fail(std::string_view name, std::string_view code, std::string_view message);
  bool FailType(std::string_view name, std::string_view expected, const text::jinja::Value& got);
  // Takes over the mistake of a nested object, if it has one.
  void Adopt(const absl::Status& nested) { status_.Update(nested); }
  const absl::Status& status() const { return status_; }
  std::string PathOf(std::string_view name) const;

 private:
  const text::jinja::Dict& object_;
  const std::string path_;
  absl::Status status_;
};

// "a string", "an object", ...: how errors call a value's type.
std::string_view JsonTypeName(const text::jinja::Value& value);
// The integer that `value` holds; 3.0 counts, true does not.
std::optional<std::int64_t> AsJsonInteger(const text::jinja::Value& value);

}  // namespace baton::router
