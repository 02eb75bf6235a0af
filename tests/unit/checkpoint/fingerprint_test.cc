#include "checkpoint/fingerprint.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "checkpoint/gguf_checkpoint.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/test_paths.h"

namespace baton::checkpoint {
namespace {

using testing::GgufBuilder;
using testing::SmallLlamaGguf;

std::string FingerprintOf(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.Build();
  const auto model = OpenGgufFromMemory(bytes, "small.gguf");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? (*model)->fingerprint() : "";
}

TEST(FingerprintTest, IsTheSameForTheSameModelUnderAnotherName) {
  GgufBuilder renamed = SmallLlamaGguf();
  renamed.Set("general.name", std::string("copy"));

  EXPECT_EQ(FingerprintOf(SmallLlamaGguf()), FingerprintOf(renamed));
  EXPECT_EQ(FingerprintOf(renamed).size(), 64u);
}

TEST(FingerprintTest, ChangesWithWeightsTypesAndHyperparameters) {
  std::set<std::string> seen = {FingerprintOf(SmallLlamaGguf())};

  GgufBuilder weight = SmallLlamaGguf();
  weight.FindTensor("blk.1.ffn_down.weight").data.back() ^= std::byte{1};
  EXPECT_TRUE(seen.insert(FingerprintOf(weight)).second);

  GgufBuilder type = SmallLlamaGguf();
  type.FindTensor("output_norm.weight").type = 1;  // F16: half of the bytes are used
  EXPECT_TRUE(seen.insert(FingerprintOf(type)).second);

  GgufBuilder rope = SmallLlamaGguf();
  rope.Set("llama.rope.freq_base", 500000.0f);
  EXPECT_TRUE(seen.insert(FingerprintOf(rope)).second);

  GgufBuilder epsilon = SmallLlamaGguf();
  epsilon.Set("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  EXPECT_TRUE(seen.insert(FingerprintOf(epsilon)).second);
}

TEST(FingerprintTest, SwappedTensorsDoNotHashAlike) {
  GgufBuilder swapped = SmallLlamaGguf();
  auto& gate = swapped.FindTensor("blk.0.ffn_gate.weight");
  gate.data[2] = std::byte{99};
  const std::string one = FingerprintOf(swapped);
  std::swap(gate.data, swapped.FindTensor("blk.0.ffn_up.weight").data);

  EXPECT_NE(one, FingerprintOf(swapped));
}

}  // namespace
}  // namespace baton::checkpoint
