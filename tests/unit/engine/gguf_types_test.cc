// Whole GGUF models of random blocks of each tensor type: the file against the same blocks in
// memory, and the CPU backend against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/golden_engine.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/random_matrix.h"
#include "tests/support/temp_directory.h"

namespace baton::testing {
namespace {

using checkpoint::DType;

// ggml's number of a type (enum ggml_type).
std::uint32_t GgmlType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kIQ4_NL:
      return 20;
    case DType::kIQ4_XS:
      return 23;
    case DType::kBF16:
      return 30;
    case DType::kMXFP4:
      return 39;
    case DType::kInt4:
      break;
  }
  return ~0u;
}

checkpoint::ModelMetadata Metadata() {
  checkpoint::ModelMetadata metadata = TinyMetadata();
  metadata.hidden_size = 256;
  metadata.intermediate_size = 512;
  metadata.num_heads = 4;
  metadata.num_kv_heads = 2;
  metadata.head_dim = metadata.rope.dim = 64;
  metadata.rope.interleaved = true;  // as in GGUF files of this family
  return metadata;
}

std::vector<std::byte> BuildGguf(const checkpoint::Checkpoint& model) {
  const checkpoint::ModelMetadata& metadata = model.metadata();
  const auto number = [](int value) { return static_cast<std::uint32_t>(value); };
  GgufBuilder builder;
  builder.metadata = {
      {"general.architecture", std::string("llama")},
      {"llama.block_count", number(metadata.num_layers)},
      {"llama.context_length", number(metadata.max_context)},
      {"llama.embedding_length", number(metadata.hidden_size)},
      {"llama.feed_forward_length", number(metadata.intermediate_size)},
      {"llama.attention.head_count", number(metadata.num_heads)},
      {"llama.attention.head_count_kv", number(metadata.num_kv_heads)},
      {"llama.attention.layer_norm_rms_epsilon", metadata.rms_norm_eps},
      {"llama.rope.freq_base", metadata.rope.theta},
      {"llama.rope.dimension_count", number(metadata.rope.dim)},
      {"tokenizer.ggml.model", std::string("gpt2")},
      {"tokenizer.ggml.pre", std::string("smollm")},
  };
  std::vector<std::string> tokens;
  for (int i = 0; i < metadata.vocab_size; ++i) tokens.push_back(absl::StrCat("t", i));
  builder.Set("tokenizer.ggml.tokens", tokens);
  builder.Set("tokenizer.ggml.token_type", std::vector<std::int32_t>(tokens.size(), 1));
  builder.Set("tokenizer.ggml.merges", std::vector<std::string>());
  for (const auto& [name, tensor] : model.tensors()) {
    const std::string file_name = absl::StrReplaceAll(name, {{"token_embedding.", "token_embd."},
                                                             {"layers.", "blk."},
                                                             {".attention_norm.", ".attn_norm."},
                                                             {".mlp_norm.", ".ffn_norm."},
                                                             {".q.", ".attn_q."},
                                                             {".k.", ".attn_k."},
                                                             {".v.", ".attn_v."},
                                                             {".o.", ".attn_output."},
                                                             {".gate.", ".ffn_gate."},
                                                             {".up.", ".ffn_up."},
                                                             {".down.", ".ffn_down."}});
    builder.tensors.push_back({.name = file_name,
                               .shape = tensor.shape,
                               .type = GgmlType(tensor.dtype),
                               .data = {tensor.data.begin(), tensor.data.end()}});
  }
  return builder.Build();
}

using Rows = std::vector<std::vector<float>>;

Rows LogitsOf(std::shared_ptr<const checkpoint::Checkpoint> model, const EngineSetup& setup) {
  const auto engine = GoldenEngine::Create(std::move(model), setup);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status();
    return {};
  }
  std::mt19937 random(8);
  std::vector<std::int32_t> tokens(24);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 131);
  Rows rows;
  const absl::Status status = (*engine)->Forced(tokens, 0, [&](int, std::span<const float> row) {
    rows.emplace_back(row.begin(), row.end());
  });
  EXPECT_TRUE(status.ok()) << status;
  return rows;
}

// The largest difference, in parts of the largest magnitude of the expected row.
double LargestDifference(const Rows& expected, const Rows& actual) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double largest = 0;
    double error = 0;
    for (std::size_t k = 0; k < expected[i].size(); ++k) {
      largest = std::max<double>(largest, std::abs(expected[i][k]));
      error = std::max<double>(error, std::abs(expected[i][k] - actual[i][k]));
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}

class GgufTypesTest : public ::testing::TestWithParam<DType> {};

TEST_P(GgufTypesTest, ModelsOfTheTypeGiveTheLogitsOfTheirBlocks) {
  const auto blocks = MakeRandomCheckpoint(Metadata(), GetParam(), 17);
  TempDirectory directory;
  auto opened = checkpoint::Checkpoint::Open(directory.Write("model.gguf", BuildGguf(*blocks)));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::shared_ptr<const checkpoint::Checkpoint> file = *std::move(opened);
  ASSERT_EQ(file->Find("layers.1.down.weight")->dtype, GetParam());

  const Rows expected = LogitsOf(blocks, {});

  ASSERT_EQ(expected.size(), 24u);
  EXPECT_EQ(LogitsOf(file, {}), expected);
  for (const auto compute : {engine::ComputeMode::kF32, engine::ComputeMode::kFast}) {
    const EngineSetup setup{.backend = Backend::kCpu, .compute = compute, .num_threads = 2};
    const Rows actual = LogitsOf(file, setup);
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_LE(LargestDifference(expected, actual),
              compute == engine::ComputeMode::kF32 ? 2e-5 : 2e-3)
        << SetupName(setup);
  }
}

std::vector<DType> FileTypes() {
  std::vector<DType> types = AllDTypes();
  std::erase(types, DType::kInt4);
  return types;
}

INSTANTIATE_TEST_SUITE_P(Every, GgufTypesTest, ::testing::ValuesIn(FileTypes()),
                         [](const auto& tested) {
                           return std::string(checkpoint::DTypeName(tested.param));
                         });

}  // namespace
}  // namespace baton::testing
