#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/tensor.h"

namespace baton::checkpoint {

// A tensor as a container file lists it, before any architecture has given it a meaning: its name
// is the file's own. Its data lies inside the file, is as long as type and shape demand, and no
// other tensor's data overlaps it.
struct StoredTensor {
  std::optional<DType> dtype;       // empty: a type that Baton does not compute with
  std::string type_name;            // the file's own name of the type
  std::vector<std::int64_t> shape;  // outermost first, 1 to 4 sizes, each positive
  std::span<const std::byte> data;
  std::span<const std::int32_t> column_order;  // as Tensor's
  bool may_be_left = false;  // whether a family that does not know it may pass it over
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

// The number of elements of `shape`, or empty when it does not fit 63 bits or a size is below 1.
std::optional<std::int64_t> ElementCount(std::span<const std::int64_t> shape);

// kInvalidArgument when the data of two tensors overlap, naming both.
absl::Status CheckNoOverlap(const StoredTensors& tensors);

}  // namespace baton::checkpoint
