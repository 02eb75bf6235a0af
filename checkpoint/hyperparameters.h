#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "checkpoint/family.h"
#include "checkpoint/model_metadata.h"

namespace baton::checkpoint {

// Answers the whole number under a key of the file, or empty when the key is missing.
using IntegerLookup =
    std::function<absl::StatusOr<std::optional<std::int64_t>>(std::string_view key)>;

// Fills the sizes of `metadata` from the file by the family's keys. A missing optional one stays 0.
//   kInvalidArgument  a required key is missing, or a value is out of its range
absl::Status ReadSizes(const Family& family, FileFormat format, const IntegerLookup& lookup,
                       ModelMetadata& metadata);

// Fills KV heads and head size where the file leaves them to be computed, and checks that the sizes
// agree with each other.
//   kInvalidArgument  names the values and the rule they break
absl::Status CompleteSizes(ModelMetadata& metadata);

// Checks the rest, after CompleteSizes: norm epsilon and rope, whose dimensions are all of a head
// when not stated.
//   kInvalidArgument  as above
absl::Status CompleteAndCheckRope(ModelMetadata& metadata);

}  // namespace baton::checkpoint
