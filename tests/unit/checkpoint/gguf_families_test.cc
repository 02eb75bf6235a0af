// Files as llama.cpp's converter writes them mean what the directories they come from mean.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/inspect.h"
#include "tests/support/gguf_converter.h"
#include "tests/support/metadata_text.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_paths.h"

namespace baton::checkpoint {
namespace {

using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::MetadataText;

std::string ArchFolder(const std::string& name) { return testing::GoldenDir() + "/arch/" + name; }

// A model, its conversion, and the bytes that the conversion points into.
struct Pair {
  explicit Pair(const std::string& folder) : original(Checkpoint::Open(ArchFolder(folder))) {
    const auto converted =
        testing::ConvertToGguf(ArchFolder(folder), {.matrices = testing::GgufMatrices::kAsStored});
    if (converted.ok()) {
      builder = *converted;
    } else {
      original = converted.status();
    }
  }
  absl::StatusOr<std::unique_ptr<Checkpoint>> Open() {
    bytes = builder.Build();
    return OpenGgufFromMemory(bytes, "converted.gguf");
  }

  absl::StatusOr<std::unique_ptr<Checkpoint>> original;
  GgufBuilder builder;
  std::vector<std::byte> bytes;
};

std::vector<float> Values(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.rows() * tensor.columns()));
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    DequantizeRow(tensor.dtype, tensor.data.data() + row * tensor.row_bytes(), tensor.columns(),
                  values.data() + row * tensor.columns());
  }
  return values;
}

// Where row `row` of a converted tensor of q or k is in the original.
std::int64_t OriginalRow(std::int64_t row, int head_dim) {
  const std::int64_t in_head = row % head_dim;
  return row - in_head + in_head / 2 + (in_head % 2) * (head_dim / 2);
}

bool IsTurned(const std::string& name) {
  return name.ends_with(".q.weight") || name.ends_with(".k.weight") || name.ends_with(".q.bias") ||
         name.ends_with(".k.bias");
}

// What the converter multiplies the tensor by: GGUF cannot state a query scale of Gemma's, so it is
// folded into the weights that come last before the product with k.
float QueryFactor(const std::string& name, const ModelMetadata& original) {
  const bool last = name.ends_with(original.qk_norm ? ".q_norm.weight" : ".q.weight");
  if (original.attention_scale == 0 || !last) return 1.0f;
  return original.attention_scale * std::sqrt(static_cast<float>(original.head_dim));
}

void ExpectSameTensor(const Tensor& original, const Tensor& converted,
                      const ModelMetadata& metadata, float norm_offset, float factor) {
  ASSERT_EQ(converted.shape, original.shape);
  const std::vector<float> from = Values(original);
  const std::vector<float> to = Values(converted);
  const std::int64_t rows = original.shape[0];
  const std::int64_t columns = static_cast<std::int64_t>(from.size()) / rows;
  const bool norm = original.name.ends_with("norm.weight");
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool turned = metadata.rope.interleaved && IsTurned(original.name);
    const std::int64_t source = turned ? OriginalRow(row, metadata.head_dim) : row;
    for (std::int64_t column = 0; column < columns; ++column) {
      const float plain = from[source * columns + column] + (norm ? norm_offset : 0.0f);
      const float tolerance = factor == 1 ? 0 : 1e-6f * std::abs(plain);
      ASSERT_NEAR(to[row * columns + column], factor * plain, tolerance)
          << "row " << row << ", column " << column;
    }
  }
}

class GgufFamilyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufFamilyTest, HasTheTensorsOfTheDirectory) {
  Pair pair(GetParam());
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();

  const auto converted = pair.Open();

  ASSERT_TRUE(converted.ok()) << converted.status();
  const ModelMetadata& from = (*pair.original)->metadata();
  const ModelMetadata& to = (*converted)->metadata();
  EXPECT_EQ((*converted)->tensors().size(), (*pair.original)->tensors().size());
  for (const auto& [name, tensor] : (*pair.original)->tensors()) {
    SCOPED_TRACE(name);
    const Tensor* other = (*converted)->Find(name);
    ASSERT_NE(other, nullptr);
    ExpectSameTensor(tensor, *other, to, from.norm_offset, QueryFactor(name, from));
  }
}

TEST_P(GgufFamilyTest, HasTheSettingsOfTheDirectory) {
  Pair pair(GetParam());
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();

  const auto converted = pair.Open();

  ASSERT_TRUE(converted.ok()) << converted.status();
  const ModelMetadata& to = (*converted)->metadata();
  ModelMetadata expected = (*pair.original)->metadata();
  expected.attention_scale = 0;                     // folded into the weights
  expected.norm_offset = 0;                         // added to the weights
  expected.rope.interleaved = to.rope.interleaved;  // the rows are reordered: see the other test
  if (expected.architecture == "mistral") expected.architecture = "llama";
  if (expected.rope.scaling == RopeScaling::kLlama3) {  // becomes a table
    EXPECT_EQ(to.rope.frequency_factors.size(), 8u);
    EXPECT_EQ(to.rope.frequency_factors.front(), 1.0f);
    EXPECT_EQ(to.rope.frequency_factors.back(), expected.rope.factor);
    expected.rope = to.rope;
  }
  EXPECT_EQ(MetadataText(to), MetadataText(expected));
}

INSTANTIATE_TEST_SUITE_P(Every, GgufFamilyTest,
                         ::testing::Values("llama31", "llama_untied_bias", "qwen2", "qwen3",
                                           "mistral", "gemma2", "gemma3_text", "qwen3_moe",
                                           "mixtral", "phi3"),
                         [](const auto& name) { return std::string(name.param); });

// What a file says when a key is changed, or left out (an empty string).
struct Change {
  std::string name;
  std::string folder;
  std::string key;
  GgufBuilder::Value value;
  std::string text;  // part of MetadataText, or of the refusal
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;
const std::string kGone;

const Change kChanges[] = {
    {"Gemma2WindowsStated", "gemma2", "attention.sliding_window_pattern", Ints{0, 1, 1},
     "window 16 in 011"},
    {"Gemma2HasAWindowUnstated", "gemma2", "attention.sliding_window", kGone, "context 512"},
    {"Gemma2CapsByRule", "gemma2", "attn_logit_softcapping", kGone, "caps 50 12"},
    {"Gemma2WithoutCap", "gemma2", "final_logit_softcapping", 0.0f, "caps 8 0"},
    {"Gemma2ScaleByRule", "gemma2", "attention.scale", kGone, "embedding scale 8, caps"},
    {"Gemma2ScaleStated", "gemma2", "attention.scale", 0.25f, "attention scale 0.25, caps"},
    {"Gemma3WindowsByRule", "gemma3_text", "attention.sliding_window_pattern", kGone,
     "window 16 in 111, rope there 10000 of 32"},
    {"Gemma3PatternIsAPeriod", "gemma3_text", "attention.sliding_window_pattern", 2u,
     "window 16 in 101"},
    {"Gemma3WithoutWindow", "gemma3_text", "attention.sliding_window", kGone, "rope 1e+06 of 32"},
    {"Gemma3LocalBaseByRule", "gemma3_text", "rope.freq_base_swa", kGone, "rope there 10000 of 32"},
    {"Gemma3LocalBaseStated", "gemma3_text", "rope.freq_base_swa", 5000.0f,
     "rope there 5000 of 32"},
    {"MistralWithoutWindowIsALlama", "mistral", "attention.sliding_window", kGone,
     "rope 10000 of 16 interleaved"},
    {"QwenWindowOfUnknownLayers", "qwen2", "attention.sliding_window", 16u,
     "'qwen2.attention.sliding_window' is 16, but the file does not say which layers"},
    {"PhiWindow", "phi3", "attention.sliding_window", 16u, "window 16 in 111"},
    {"PhiWindowOfZero", "phi3", "attention.sliding_window", 0u, "eps 1e-05, rope 10000 of 16"},
    {"PatternOfWrongLength", "gemma2", "attention.sliding_window_pattern", Ints{1, 0},
     "'gemma2.attention.sliding_window_pattern': 2 entries for 3 layers"},
    {"WindowOutOfRange", "gemma2", "attention.sliding_window", 4000000000u,
     "'gemma2.attention.sliding_window' out of range: 4000000000"},
    {"ExpertsUsedOutOfRange", "mixtral", "expert_used_count", 9u,
     "experts per token out of range: 9, must be 1..8"},
    {"NoExpertsUsed", "mixtral", "expert_used_count", kGone, "experts per token out of range: 0"},
    {"TooManyExperts", "mixtral", "expert_count", 100000u,
     "number of experts out of range: 100000"},
    {"ExpertsOfOtherSize", "qwen3_moe", "expert_feed_forward_length", 64u,
     "tensor 'blk.0.ffn_gate_exps.weight': wrong shape: [8, 128, 64], expected [8, 64, 64]"},
    {"SharedExperts", "qwen3_moe", "expert_shared_count", 1u,
     "'qwen3moe.expert_shared_count' is 1, must be 0"},
    {"SigmoidRouter", "qwen3_moe", "expert_gating_func", 2u,
     "'qwen3moe.expert_gating_func' is 2, must be 1"},
    {"ExpertWeightsAsTheyAre", "qwen3_moe", "expert_weights_norm", false, "not normalized"},
    {"ExpertsInAPlainFamily", "qwen2", "expert_count", 8u, "'qwen2.expert_count' is 8, must be 0"},
    {"CapsInAPlainFamily", "qwen2", "final_logit_softcapping", 30.0f,
     "'qwen2.final_logit_softcapping' is 30, must be 0"},
    {"Bidirectional", "gemma3_text", "attention.causal", false, "attention.causal' is false"},
    {"AxesOfRope", "qwen2", "rope.dimension_sections", Ints{1, 1}, "rope of several axes"},
    {"Yarn", "qwen2", "rope.scaling.type", std::string("yarn"), "yarn 1 from 512 beta 1..32"},
    {"Linear", "qwen2", "rope.scale_linear", 4.0f, "rope 1e+06 of 16 linear 4"},
    {"LongRopeWithoutTables", "phi3", "rope.scaling.type", std::string("longrope"),
     "longrope scaling needs 'rope_factors_short.weight' and 'rope_factors_long.weight'"},
};

class GgufChangeTest : public ::testing::TestWithParam<Change> {};

TEST_P(GgufChangeTest, IsReadByTheRuleOfTheArchitecture) {
  Pair pair(GetParam().folder);
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  const std::string architecture = std::get<std::string>(pair.builder.metadata.front().second);
  const std::string key = architecture + "." + GetParam().key;
  if (GetParam().value == GgufBuilder::Value(kGone)) {
    pair.builder.Remove(key);
  } else {
    pair.builder.Set(key, GetParam().value);
  }

  const auto model = pair.Open();

  const std::string text =
      model.ok() ? MetadataText((*model)->metadata()) : std::string(model.status().message());
  EXPECT_THAT(text, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(Every, GgufChangeTest, ::testing::ValuesIn(kChanges),
                         [](const auto& change) { return change.param.name; });

// The largest Gemma of each generation scales queries by the ratio of hidden size and heads.
TEST(GgufFamiliesTest, GemmaOfManyLayersScalesQueriesByItsHiddenSize) {
  Pair pair("gemma2");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  pair.builder.Set("gemma2.block_count", 46u);
  const std::vector<GgufBuilder::Tensor> tensors = pair.builder.tensors;
  for (int layer = 3; layer < 46; ++layer) {
    for (GgufBuilder::Tensor tensor : tensors) {
      if (!tensor.name.starts_with("blk.0.")) continue;
      tensor.name = absl::StrCat("blk.", layer, tensor.name.substr(5));
      pair.builder.tensors.push_back(tensor);
    }
  }

  const auto model = pair.Open();

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FLOAT_EQ((*model)->metadata().attention_scale, 0.25f);  // (64 / 4) ^ -0.5, not 32 ^ -0.5
}

// The small llama of four layers under another architecture's name.
GgufBuilder LlamaNamed(const std::string& architecture) {
  GgufBuilder builder = testing::SmallLlamaGguf();
  for (auto& [key, value] : builder.metadata) {
    if (key.starts_with("llama.")) key = architecture + key.substr(5);
  }
  builder.Set("general.architecture", architecture);
  builder.Set(architecture + ".block_count", 4u);
  const std::vector<GgufBuilder::Tensor> tensors = builder.tensors;
  for (GgufBuilder::Tensor tensor : tensors) {
    if (!tensor.name.starts_with("blk.")) continue;
    tensor.name = absl::StrCat("blk.", tensor.name[4] - '0' + 2, tensor.name.substr(5));
    builder.tensors.push_back(tensor);
  }
  return builder;
}

TEST(GgufFamiliesTest, SmolLm3DoesNotRotateEveryFourthLayer) {
  const std::vector<std::byte> bytes = LlamaNamed("smollm3").Build();

  const auto model = OpenGgufFromMemory(bytes, "small.gguf");

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(MetadataText((*model)->metadata()),
              HasSubstr("rope 10000 of 16 interleaved\nno rope in 0001"));
}

TEST(GgufFamiliesTest, GemmaScalesEmbeddingsAndHasItsNormsReady) {
  const std::vector<std::byte> bytes = LlamaNamed("gemma").Build();

  const auto model = OpenGgufFromMemory(bytes, "small.gguf");

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(MetadataText((*model)->metadata()),
            "gemma: 4 layers of 32, 2/1 heads of 16, mlp 64 gelu-tanh, vocabulary 8 tied, "
            "context 128\n"
            "eps 1e-05, embedding scale 5.65685, rope 10000 of 16");
}

TEST(GgufFamiliesTest, LongRopeTablesOfPhiAreRead) {
  Pair pair("phi3");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  const auto add = [&](const std::string& name, float first) {
    const Floats factors = {first, 2, 3, 4, 5, 6, 7, 8};
    const auto bytes = std::as_bytes(std::span(factors));
    pair.builder.tensors.push_back(
        {.name = name, .shape = {8}, .type = 0, .data = {bytes.begin(), bytes.end()}});
  };
  add("rope_factors_long.weight", 1.5f);
  add("rope_factors_short.weight", 1.0f);
  pair.builder.Set("phi3.rope.scaling.original_context_length", 64u);
  pair.builder.Set("phi3.rope.scaling.attn_factor", 1.25f);

  const auto model = pair.Open();

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(MetadataText((*model)->metadata()),
              HasSubstr("longrope 8 from 64 short 1..8 of 8 long 1.5..8 of 8 times 1.25"));
  EXPECT_EQ((*model)->metadata().max_context, 512);
}

// A row is whole blocks, so fused matrices part between bytes whatever their type.
TEST(GgufFamiliesTest, FusedMatricesMayBeQuantized) {
  Pair pair("phi3");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  constexpr std::size_t kRowBytes = 2 * 34;  // two blocks of Q8_0
  GgufBuilder::Tensor& fused = pair.builder.FindTensor("blk.0.attn_qkv.weight");
  fused.type = 8;
  fused.data.assign(128 * kRowBytes, std::byte{0});
  for (std::size_t row = 0; row < 128; ++row) fused.data[row * kRowBytes + 2] = std::byte(row);

  const auto model = pair.Open();

  ASSERT_TRUE(model.ok()) << model.status();
  const Tensor& k = *(*model)->Find("layers.0.k.weight");
  const Tensor& v = *(*model)->Find("layers.0.v.weight");
  EXPECT_EQ(k.dtype, DType::kQ8_0);
  EXPECT_EQ(k.data.size(), 32 * kRowBytes);
  EXPECT_EQ(k.data[2], std::byte{64});
  EXPECT_EQ(v.data[2], std::byte{96});
}

TEST(GgufFamiliesTest, FusedMatricesOfAnotherSizeAreRefused) {
  Pair pair("phi3");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  pair.builder.FindTensor("blk.0.attn_qkv.weight").shape = {64, 128};

  const auto model = pair.Open();

  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("tensor 'blk.0.attn_qkv.weight': wrong shape: [64, 128], expected "
                        "[128, 64]"));
}

TEST(GgufFamiliesTest, ExpertsMayBeStoredOneByOne) {
  Pair pair("mixtral");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  std::vector<GgufBuilder::Tensor> tensors;
  for (const GgufBuilder::Tensor& tensor : pair.builder.tensors) {
    const std::size_t mark = tensor.name.find("_exps.weight");
    if (mark == std::string::npos) {
      tensors.push_back(tensor);
      continue;
    }
    const std::size_t bytes = tensor.data.size() / 8;
    for (std::size_t expert = 0; expert < 8; ++expert) {
      const auto begin = tensor.data.begin() + static_cast<std::ptrdiff_t>(expert * bytes);
      tensors.push_back({.name = absl::StrCat(tensor.name.substr(0, mark), ".", expert, ".weight"),
                         .shape = {tensor.shape[1], tensor.shape[2]},
                         .type = tensor.type,
                         .data = {begin, begin + static_cast<std::ptrdiff_t>(bytes)}});
    }
  }
  const auto stacked = pair.Open();
  ASSERT_TRUE(stacked.ok()) << stacked.status();
  const std::vector<float> expected = Values(*(*stacked)->Find("layers.2.experts.7.down.weight"));
  pair.builder.tensors = std::move(tensors);

  const auto single = pair.Open();

  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_EQ(Values(*(*single)->Find("layers.2.experts.7.down.weight")), expected);
}

// The parts of a split model: the metadata in the first, every other tensor in the second.
struct Split {
  explicit Split(const Pair& pair) {
    GgufBuilder first = pair.builder;
    GgufBuilder second;
    std::vector<GgufBuilder::Tensor> tensors = std::move(first.tensors);
    first.tensors.clear();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      (i % 2 == 0 ? first : second).tensors.push_back(tensors[i]);
    }
    for (GgufBuilder* part : {&first, &second}) {
      part->Set("split.count", 2u);
      part->Set("split.no", part == &first ? 0u : 1u);
    }
    paths[0] = directory.Write("m-00001-of-00002.gguf", first.Build());
    paths[1] = directory.Write("m-00002-of-00002.gguf", second.Build());
  }
  testing::TempDirectory directory;
  std::string paths[2];
};

TEST(GgufSplitTest, AllPartsAreOneModel) {
  const Pair pair("qwen2");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  const Split split(pair);

  const auto model = Checkpoint::Open(split.paths[0]);

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tensors().size(), (*pair.original)->tensors().size());
}

TEST(GgufSplitTest, AllPartsCountAsTheModelsSize) {
  const Pair pair("qwen2");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  const Split split(pair);

  const auto whole = WeightFileBytes(split.paths[0]);
  const auto second = WeightFileBytes(split.paths[1]);

  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(static_cast<std::uintmax_t>(*second), std::filesystem::file_size(split.paths[1]));
  EXPECT_EQ(static_cast<std::uintmax_t>(*whole - *second),
            std::filesystem::file_size(split.paths[0]));
}

TEST(GgufSplitTest, TheFirstPartIsTheOneToGive) {
  const Pair pair("qwen2");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  const Split split(pair);

  const auto model = Checkpoint::Open(split.paths[1]);

  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("one of 2 parts of a split model: give the first, whose name ends in "
                        "'-00001-of-00002.gguf'"));
}

TEST(GgufSplitTest, AMissingPartIsNamed) {
  const Pair pair("qwen2");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  const Split split(pair);
  std::filesystem::remove(split.paths[1]);

  const auto model = Checkpoint::Open(split.paths[0]);

  EXPECT_EQ(model.status().code(), absl::StatusCode::kNotFound) << model.status();
  EXPECT_THAT(std::string(model.status().message()), HasSubstr(split.paths[1]));
}

TEST(GgufSplitTest, PartsOfAnotherModelAreRefused) {
  const Pair pair("qwen2");
  ASSERT_TRUE(pair.original.ok()) << pair.original.status();
  const Split split(pair);
  GgufBuilder third = pair.builder;
  third.Set("split.count", 3u);
  third.Set("split.no", 2u);
  split.directory.Write("m-00002-of-00002.gguf", third.Build());

  const auto model = Checkpoint::Open(split.paths[0]);

  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("part does not fit its name: it says number 3 of 3, expected 2 of 2"));
}

}  // namespace
}  // namespace baton::checkpoint
