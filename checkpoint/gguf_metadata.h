#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::checkpoint {

// Metadata value types as the file numbers them (gguf_metadata_value_type).
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// An array value. Strings are views into the file; numbers stay as stored.
struct GgufArray {
  GgufType element = GgufType::kUint8;
  std::size_t count = 0;
  std::span<const std::byte> numbers;
  std::vector<std::string_view> strings;
};

// Integers are widened by sign, float32 to double; strings are views into the file.
using GgufValue =
    std::variant<bool, std::uint64_t, std::int64_t, double, std::string_view, GgufArray>;

// Bytes of one value of a fixed-size type; 0 for strings, arrays and unknown types.
std::size_t GgufScalarBytes(GgufType type);

// The `index`th of the values of a fixed-size type stored in `bytes`.
GgufValue LoadGgufScalar(GgufType type, std::span<const std::byte> bytes, std::size_t index);

// The key-value part of a GGUF file with typed access. A getter answers empty for a missing key and
// kInvalidArgument, naming the key, for a value of another type or one that does not fit.
class GgufMetadata {
 public:
  // False when the key is there already.
  bool Add(std::string_view key, GgufValue value);
  bool Has(std::string_view key) const { return Lookup(key) != nullptr; }

  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::int64_t>> Integer(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;  // integers too
  absl::StatusOr<std::optional<std::string_view>> String(std::string_view key) const;
  // nullptr for a missing key.
  absl::StatusOr<const std::vector<std::string_view>*> Strings(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<std::int64_t>>> Integers(std::string_view key) const;
  // An array of booleans, or of integers that are 0 for false.
  absl::StatusOr<std::optional<std::vector<bool>>> Flags(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<float>>> Floats(std::string_view key) const;

  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }

 private:
  const GgufValue* Lookup(std::string_view key) const;
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace baton::checkpoint
