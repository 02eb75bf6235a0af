#include "checkpoint/fingerprint.h"

#include <gtest/gtest.h>

#include <iterator>
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

using Change = void (*)(ModelMetadata&);

// Two workers that differ in any of these would compute different KV.
const Change kChanges[] = {
    [](auto& m) { m.architecture = "b"; },
    [](auto& m) { m.format = "gguf"; },
    [](auto& m) { m.hidden_size = 1; },
    [](auto& m) { m.num_layers = 1; },
    [](auto& m) { m.num_heads = 1; },
    [](auto& m) { m.num_kv_heads = 1; },
    [](auto& m) { m.head_dim = 1; },
    [](auto& m) { m.intermediate_size = 1; },
    [](auto& m) { m.vocab_size = 1; },
    [](auto& m) { m.max_context = 1; },
    [](auto& m) { m.rms_norm_eps = 1e-3f; },
    [](auto& m) { m.norm_offset = 1; },
    [](auto& m) { m.tied_embeddings = true; },
    [](auto& m) { m.attention_bias = true; },
    [](auto& m) { m.output_bias = true; },
    [](auto& m) { m.mlp_bias = true; },
    [](auto& m) { m.qk_norm = true; },
    [](auto& m) { m.post_norms = true; },
    [](auto& m) { m.activation = Activation::kGelu; },
    [](auto& m) { m.embedding_scale = 2; },
    [](auto& m) { m.attention_scale = 2; },
    [](auto& m) { m.attention_softcap = 2; },
    [](auto& m) { m.logit_softcap = 2; },
    [](auto& m) { m.sliding_window = 1; },
    [](auto& m) {
      m.windowed_layers = {true, false};
    },
    [](auto& m) {
      m.windowed_layers = {false, true};
    },
    [](auto& m) {
      m.no_rope_layers = {true, false};
    },
    [](auto& m) { m.num_experts = 1; },
    [](auto& m) { m.experts_per_token = 1; },
    [](auto& m) { m.expert_intermediate_size = 1; },
    [](auto& m) { m.normalize_expert_weights = false; },
    [](auto& m) { m.rope.theta = 1; },
    [](auto& m) { m.rope.dim = 1; },
    [](auto& m) { m.rope.interleaved = true; },
    [](auto& m) { m.rope.scaling = RopeScaling::kYarn; },
    [](auto& m) { m.rope.factor = 2; },
    [](auto& m) { m.rope.original_max_position = 1; },
    [](auto& m) { m.rope.attention_factor = 1; },
    [](auto& m) { m.rope.low_frequency_factor = 2; },
    [](auto& m) { m.rope.high_frequency_factor = 2; },
    [](auto& m) { m.rope.beta_fast = 2; },
    [](auto& m) { m.rope.beta_slow = 2; },
    [](auto& m) { m.rope.truncate = false; },
    [](auto& m) { m.rope.mscale = 2; },
    [](auto& m) { m.rope.mscale_all_dim = 2; },
    [](auto& m) { m.rope.short_factors = {2}; },
    [](auto& m) { m.rope.long_factors = {2}; },
    [](auto& m) { m.rope.frequency_factors = {2}; },
    [](auto& m) { m.local_rope = m.rope; },
    [](auto& m) { m.local_rope = RopeMetadata{.theta = 5}; },
};

TEST(FingerprintTest, ChangesWithEverySetting) {
  std::set<std::string> seen = {Fingerprint(ModelMetadata(), {})};

  for (std::size_t i = 0; i < std::size(kChanges); ++i) {
    ModelMetadata metadata;
    kChanges[i](metadata);
    EXPECT_TRUE(seen.insert(Fingerprint(metadata, {})).second) << "change " << i;
  }
}

TEST(FingerprintTest, ChangesWithTheOrderOfColumns) {
  const std::vector<std::int32_t> orders[] = {{0, 1}, {1, 0}};
  std::set<std::string> seen;
  for (const std::vector<std::int32_t>& order : orders) {
    const Tensor tensor{.name = "a", .shape = {2}, .column_order = order};
    EXPECT_TRUE(seen.insert(Fingerprint(ModelMetadata(), {{"a", tensor}})).second);
  }
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
