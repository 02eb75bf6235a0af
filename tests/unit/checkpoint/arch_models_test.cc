// The small checkpoints of each architecture open and say what their configs say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <string>

#include "checkpoint/checkpoint.h"
#include "tests/support/metadata_text.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_paths.h"

namespace baton::checkpoint {
namespace {

struct Model {
  std::string folder;
  std::string weights;  // folder of the weights, where another
  std::string text;     // MetadataText
};

void PrintTo(const Model& model, std::ostream* out) { *out << model.folder; }

const Model kModels[] = {
    {"llama31", "",
     "llama: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512 tied, context 512\n"
     "eps 1e-05, rope 10000 of 16 llama3 8 from 64 low 1 high 4"},
    {"llama31/variants/linear", "llama31",
     "llama: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512 tied, context 2048\n"
     "eps 1e-05, rope 10000 of 16 linear 4"},
    {"llama31/variants/dynamic", "llama31",
     "llama: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512 tied, context 128\n"
     "eps 1e-05, rope 10000 of 16 dynamic 2 from 64"},
    {"llama31/variants/yarn", "llama31",
     "llama: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512 tied, context 256\n"
     "eps 1e-05, rope 10000 of 16 yarn 4 from 64 beta 1..32"},
    {"llama_untied_bias", "",
     "llama: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512, context 512\n"
     "eps 1e-05, qkv bias, o bias, mlp bias, rope 500000 of 16"},
    {"qwen2", "",
     "qwen2: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512 tied, context 512\n"
     "eps 1e-06, qkv bias, rope 1e+06 of 16"},
    {"qwen3", "",
     "qwen3: 3 layers of 64, 4/2 heads of 24, mlp 128 silu, vocabulary 512 tied, context 512\n"
     "eps 1e-06, qk norm, rope 1e+06 of 24"},
    {"mistral", "",
     "mistral: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512, context 512\n"
     "eps 1e-05, rope 10000 of 16\n"
     "window 16 in 111"},
    {"gemma2", "",
     "gemma2: 3 layers of 64, 4/2 heads of 32, mlp 128 gelu-tanh, vocabulary 512 tied, "
     "context 512\n"
     "eps 1e-06, norm offset 1, post norms, embedding scale 8, attention scale 0.204124, "
     "caps 8 12, rope 10000 of 32\n"
     "window 16 in 101"},
    {"gemma3_text", "",
     "gemma3: 3 layers of 64, 4/2 heads of 32, mlp 128 gelu-tanh, vocabulary 512 tied, "
     "context 512\n"
     "eps 1e-06, norm offset 1, qk norm, post norms, embedding scale 8, attention scale 0.204124, "
     "rope 1e+06 of 32\n"
     "window 16 in 110, rope there 10000 of 32"},
    {"qwen3_moe", "",
     "qwen3_moe: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512, context 512\n"
     "eps 1e-06, qk norm, rope 1e+06 of 16\n"
     "2 of 8 experts of 128"},
    {"mixtral", "",
     "mixtral: 3 layers of 64, 4/2 heads of 16, mlp 64 silu, vocabulary 512, context 512\n"
     "eps 1e-05, rope 1e+06 of 16\n"
     "2 of 8 experts of 64"},
    {"phi3", "",
     "phi3: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512, context 512\n"
     "eps 1e-05, rope 10000 of 16"},
};

class ArchModelTest : public ::testing::TestWithParam<Model> {};

TEST_P(ArchModelTest, SaysWhatItsConfigSays) {
  const std::filesystem::path arch = testing::GoldenDir() + "/arch";
  std::string folder = arch / GetParam().folder;
  const testing::TempDirectory joined;
  if (!GetParam().weights.empty()) {
    for (const char* name : {"config.json", "model.safetensors"}) {
      const std::string from =
          name == std::string("config.json") ? GetParam().folder : GetParam().weights;
      std::filesystem::copy_file(arch / from / name, std::filesystem::path(joined.path()) / name);
    }
    folder = joined.path();
  }

  const auto model = Checkpoint::Open(folder);

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(testing::MetadataText((*model)->metadata()), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(Every, ArchModelTest, ::testing::ValuesIn(kModels), [](const auto& model) {
  std::string name = model.param.folder;
  for (char& c : name) c = c == '/' ? '_' : c;
  return name;
});

TEST(ArchModelsTest, FusedProjectionsBecomeTheirRows) {
  const auto model = Checkpoint::Open(testing::GoldenDir() + "/arch/phi3");

  ASSERT_TRUE(model.ok()) << model.status();
  const Tensor* q = (*model)->Find("layers.1.q.weight");
  const Tensor* k = (*model)->Find("layers.1.k.weight");
  const Tensor* v = (*model)->Find("layers.1.v.weight");
  const Tensor* gate = (*model)->Find("layers.1.gate.weight");
  const Tensor* up = (*model)->Find("layers.1.up.weight");
  ASSERT_TRUE(q != nullptr && k != nullptr && v != nullptr && gate != nullptr && up != nullptr);
  EXPECT_EQ(q->rows(), 64);
  EXPECT_EQ(k->rows(), 32);
  EXPECT_EQ(v->rows(), 32);
  EXPECT_EQ(k->data.data(), q->data.data() + q->data.size());
  EXPECT_EQ(v->data.data(), k->data.data() + k->data.size());
  EXPECT_EQ(up->data.data(), gate->data.data() + gate->data.size());
  for (const Tensor* tensor : {q, k, v, gate, up}) {
    EXPECT_EQ(static_cast<std::int64_t>(tensor->data.size()), tensor->rows() * tensor->row_bytes());
  }
}

TEST(ArchModelsTest, ExpertsOfEveryShardAreFound) {
  const auto model = Checkpoint::Open(testing::GoldenDir() + "/arch/qwen3_moe");

  ASSERT_TRUE(model.ok()) << model.status();
  for (int layer = 0; layer < 3; ++layer) {
    for (int expert = 0; expert < 8; ++expert) {
      const std::string prefix =
          "layers." + std::to_string(layer) + ".experts." + std::to_string(expert);
      EXPECT_NE((*model)->Find(prefix + ".gate.weight"), nullptr) << prefix;
      EXPECT_NE((*model)->Find(prefix + ".up.weight"), nullptr) << prefix;
      EXPECT_NE((*model)->Find(prefix + ".down.weight"), nullptr) << prefix;
    }
  }
  EXPECT_EQ((*model)->Find("layers.0.gate.weight"), nullptr);
}

}  // namespace
}  // namespace baton::checkpoint
