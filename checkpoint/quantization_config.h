#pragma once
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "checkpoint/json_object.h"

namespace baton::checkpoint {

// How a Hugging Face directory packs the weights of its linear maps: 4-bit codes, eight to a 32-bit
// word, with a scale and a zero for every group of inputs.
struct QuantizationConfig {
  enum class Method : std::uint8_t { kAwq, kGptq };
  Method method = Method::kAwq;
  // Inputs that share a scale, a multiple of 32; 0: all of them.
  int group_size = 0;
  // What the reader adds to a stored zero: 1 in the first version of GPTQ's format.
  int zero_offset = 0;
  // Whether an input's group must be looked up: GPTQ's act-order.
  bool needs_group_index = false;
};

// Reads "quantization_config" of a config.json; empty when there is none.
//   kInvalidArgument     a value of the wrong type
//   kFailedPrecondition  a method or setting that is not supported; lists those that are
absl::StatusOr<std::optional<QuantizationConfig>> ReadQuantizationConfig(const JsonObject& config);

}  // namespace baton::checkpoint
