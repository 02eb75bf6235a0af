#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/temp_directory.h"

namespace baton::testing {

// What a float32 model makes of one prompt.
struct ArchPrompt {
  std::vector<std::int32_t> input_ids;
  std::vector<float> last_logits;        // [vocab], after the last input id
  std::vector<std::int32_t> greedy_ids;  // after the input, ends of output ignored; may be empty
};

// One model of a folder in the format of tests/golden/arch/README.md.
struct ArchModel {
  std::string name;     // its folder below the one searched: "llama31/variants/yarn"
  std::string config;   // path of its config.json
  std::string weights;  // folder of its *.safetensors: its own, or that of the model it varies
  std::vector<ArchPrompt> prompts;
};

// Every folder below `folder` with a config.json and a golden.json, ordered by name. A folder
// .../variants/NAME without weights takes those of the folder above "variants".
//   kNotFound         none
//   kInvalidArgument  a golden.json that cannot be read; names it
absl::StatusOr<std::vector<ArchModel>> FindArchModels(const std::string& folder);

// A Hugging Face directory of the model inside `temp`: links to its config and weights.
std::string LinkArchModel(const ArchModel& model, const TempDirectory& temp);

}  // namespace baton::testing
