#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/support/safetensors_builder.h"
#include "tests/support/temp_directory.h"

namespace baton::testing {

// A 4-bit packing of linear maps, as AutoAWQ and AutoGPTQ publish them.
struct Int4Packing {
  enum class Method : std::uint8_t { kAwqGemm, kGptq, kGptqV2 };
  Method method = Method::kAwqGemm;
  int group_size = 32;         // -1: all inputs
  bool act_order = false;      // GPTQ: groups are spread over the inputs at random
  std::string config() const;  // "quantization_config" as JSON
};

// One linear map packed: NAME.qweight, .qzeros, .scales and, for GPTQ, .g_idx; and what it stands
// for.
struct PackedLinearMap {
  std::vector<SafetensorsBuilder::Tensor> tensors;
  std::vector<float> weight;  // [outputs, inputs]
};

// Rounds `weight` [outputs, inputs] to 16 steps between the least and the greatest of each group.
// Outputs are a multiple of 8, inputs of 32.
PackedLinearMap PackLinearMap(const std::string& name, const std::vector<float>& weight,
                              int outputs, int inputs, const Int4Packing& packing,
                              std::mt19937& random);

// The Hugging Face directory `source`, of one safetensors file, with its projections packed, and
// the same model with their values as F32.
struct PackedDirectory {
  PackedDirectory(const std::string& source, const Int4Packing& packing, unsigned seed);
  TempDirectory packed;
  TempDirectory plain;
  int num_packed = 0;  // linear maps
};

}  // namespace baton::testing
