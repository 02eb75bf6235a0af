#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/family.h"
#include "checkpoint/model_metadata.h"

namespace baton::checkpoint {

inline constexpr int kMostContext = 1 << 28;  // tokens, far above any model known

// Answers the whole number under a key of the file, or empty when the key is missing.
using IntegerLookup =
    std::function<absl::StatusOr<std::optional<std::int64_t>>(std::string_view key)>;

// Fills the sizes of `metadata` from the file by the family's keys. A missing one keeps its value.
//   kInvalidArgument  a required key is missing and there is no value, or one is out of its range
absl::Status ReadSizes(const Family& family, FileFormat format, const IntegerLookup& lookup,
                       ModelMetadata& metadata);

// Fills KV heads and head size where the file leaves them to be computed, and checks that the sizes
// agree with each other.
//   kInvalidArgument  names the values and the rule they break
absl::Status CompleteSizes(ModelMetadata& metadata);

// The rest are checks after CompleteSizes. kInvalidArgument as above.
absl::Status CheckRope(const ModelMetadata& metadata);     // and local_rope
absl::Status CheckNumbers(const ModelMetadata& metadata);  // epsilon, scales, soft caps
absl::Status CheckExperts(const ModelMetadata& metadata);

// Sets max_context, until now what the file states, to what the scaled model serves. The rule is
// vLLM's: where `context_scaled` is false the stated one, else
//   linear, dynamic   the stated one * factor
//   yarn              the context before scaling * factor
//   others            the stated one
// Must run after CheckRope.
//   kInvalidArgument  the product is out of range
absl::Status ScaleContext(bool context_scaled, ModelMetadata& metadata);

// Sets the window of the layers so marked, unless it hides nothing: it is no shorter than the
// context. `windowed` has an entry per layer; `window` is positive.
void SetWindow(int window, std::vector<bool> windowed, ModelMetadata& metadata);

}  // namespace baton::checkpoint
