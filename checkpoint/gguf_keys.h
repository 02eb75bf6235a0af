#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/gguf_metadata.h"

namespace baton::checkpoint {

// Access to "<architecture>.<key>" of one file; getters answer as GgufMetadata's. Refers to the
// metadata, which must outlive it.
class GgufKeys {
 public:
  GgufKeys(const GgufMetadata& metadata, std::string_view architecture);

  std::string Full(std::string_view key) const;
  bool IsArray(std::string_view key) const;
  // Files may state a size per layer; an array of equal entries counts as one number.
  //   kFailedPrecondition  entries differ
  absl::StatusOr<std::optional<std::int64_t>> Integer(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string_view>> String(std::string_view key) const;
  // An array of booleans, or of integers that are 0 for false.
  absl::StatusOr<std::optional<std::vector<bool>>> Flags(std::string_view key) const;

 private:
  const GgufMetadata& metadata_;
  const std::string prefix_;
};

}  // namespace baton::checkpoint
