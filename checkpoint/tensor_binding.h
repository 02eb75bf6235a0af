#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "checkpoint/family.h"
#include "checkpoint/stored_tensor.h"
#include "checkpoint/tensor.h"

namespace baton::checkpoint {

// Gives the stored tensors their canonical names; fused and stacked ones become their parts, views
// of the same bytes. Every tensor that the family and the metadata call for must be there with its
// shape and a type we compute with; vectors (norms, biases) must be F32, F16 or BF16. A tensor that
// no rule names and that is not ignored is refused, since it stands for arithmetic that would be
// left out. The tensors' number is bounded by the metadata's checks.
//   kInvalidArgument     a tensor is missing or misshapen
//   kFailedPrecondition  a tensor type or a tensor that the family does not know
absl::StatusOr<std::map<std::string, Tensor, std::less<>>> BindTensors(
    const Family& family, FileFormat format, const ModelMetadata& metadata,
    const StoredTensors& stored);

}  // namespace baton::checkpoint
