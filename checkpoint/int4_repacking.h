#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/stored_tensor.h"

namespace baton::checkpoint {

// Memory that repacked tensors point into. Moving it moves no byte.
struct RepackedWeights {
  std::deque<std::vector<std::byte>> blocks;
  std::deque<std::vector<std::int32_t>> column_orders;  // all different
};

// Replaces the packed tensors of every quantized linear map, X.qweight, X.qzeros, X.scales and
// X.g_idx, by X.weight [outputs, inputs] of DType::kInt4 in `memory`, one map after the other; the
// values are exactly scale * (code - zero). Inputs of act-order are sorted by group and the sorting
// becomes the tensor's column_order; maps with the same order share it. A bias of zeros, which old
// writers gave to every map, is marked `may_be_left`. Other tensors stay as they are.
// Formats: AutoAWQ's WQLinear_GEMM, AutoGPTQ's QuantLinear (checkpoint_format "gptq", "gptq_v2").
//   kInvalidArgument     a tensor of a map is missing or misshapen, or a group index is wrong
//   kFailedPrecondition  element types or sizes that are not supported
absl::Status RepackLinearMaps(const QuantizationConfig& config, StoredTensors& stored,
                              RepackedWeights& memory);

}  // namespace baton::checkpoint
