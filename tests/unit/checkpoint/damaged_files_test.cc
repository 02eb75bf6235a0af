// Property: whatever happens to the bytes of a valid model file, opening it ends in a Status. Run
// under the address and undefined-behaviour sanitizers, this also shows that nothing is read out of
// bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/huggingface_config.h"
#include "checkpoint/inspect.h"
#include "checkpoint/safetensors_file.h"
#include "tests/support/checkpoint_inputs.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_converter.h"
#include "tests/support/safetensors_builder.h"
#include "tests/support/test_paths.h"

namespace baton::checkpoint {
namespace {

using testing::UseConfigBytes;
using testing::UseGgufBytes;
using testing::UseSafetensorsBytes;

// Flips bits, overwrites words with telling values, removes and repeats pieces, cuts the end.
std::vector<std::byte> Damaged(std::vector<std::byte> bytes, std::mt19937& random) {
  constexpr std::uint64_t kTelling[] = {0,        1,          0xFF,  0x7FFFFFFF, 0xFFFFFFFF,
                                        1u << 31, 1ull << 32, ~0ull, ~0ull >> 1, 1ull << 62};
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes && !bytes.empty(); ++i) {
    const std::size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] ^= static_cast<std::byte>(1u << (random() % 8));
        break;
      case 1: {
        const std::uint64_t value = kTelling[random() % std::size(kTelling)];
        const std::size_t width =
            std::min<std::size_t>(random() % 2 == 0 ? 4 : 8, bytes.size() - at);
        std::copy_n(reinterpret_cast<const std::byte*>(&value), width,
                    bytes.begin() + static_cast<long>(at));
        break;
      }
      case 2:
        bytes.resize(at);
        break;
      case 3: {
        const std::size_t count = std::min<std::size_t>(1 + random() % 16, bytes.size() - at);
        bytes.erase(bytes.begin() + static_cast<long>(at),
                    bytes.begin() + static_cast<long>(at + count));
        break;
      }
      default:
        bytes[at] = static_cast<std::byte>(random());
        break;
    }
  }
  return bytes;
}

// Most damage should hit the header, where it matters: the tensor data of the small files is
// longer.
std::vector<std::byte> HeaderDamaged(const std::vector<std::byte>& whole, std::size_t header,
                                     std::mt19937& random) {
  std::vector<std::byte> front(whole.begin(), whole.begin() + static_cast<long>(header));
  front = Damaged(std::move(front), random);
  front.insert(front.end(), whole.begin() + static_cast<long>(header), whole.end());
  return front;
}

std::size_t HeaderBytes(const std::vector<std::byte>& whole, std::size_t data_bytes) {
  return whole.size() - std::min(whole.size(), data_bytes);
}

TEST(DamagedFilesTest, GgufEndsInAStatus) {
  const testing::GgufBuilder builder = testing::SmallLlamaGguf();
  const std::vector<std::byte> whole = builder.Build();
  std::size_t data_bytes = 0;
  for (const auto& tensor : builder.tensors) data_bytes += (tensor.data.size() + 31) / 32 * 32;
  int refused = 0;

  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const std::vector<std::byte> bytes =
        HeaderDamaged(whole, HeaderBytes(whole, data_bytes), random);
    if (!UseGgufBytes(bytes)) ++refused;
  }

  EXPECT_GT(refused, 1000);  // the damage is real
  EXPECT_TRUE(UseGgufBytes(whole));
}

TEST(DamagedFilesTest, SafetensorsEndsInAStatus) {
  const testing::SafetensorsBuilder builder = testing::SmallLlamaSafetensors();
  const std::vector<std::byte> whole = builder.Build();
  const std::size_t header = 8 + builder.Header().size();
  int refused = 0;

  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    if (!UseSafetensorsBytes(HeaderDamaged(whole, header, random))) ++refused;
  }

  EXPECT_GT(refused, 1000);
  EXPECT_TRUE(UseSafetensorsBytes(whole));
}

TEST(DamagedFilesTest, ConfigEndsInAStatus) {
  const std::string text = testing::JsonText(testing::SmallLlamaConfig());
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  const std::vector<std::byte> whole(begin, begin + text.size());
  int refused = 0;

  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    if (!UseConfigBytes(Damaged(whole, random))) ++refused;
  }

  EXPECT_GT(refused, 1000);
  EXPECT_TRUE(UseConfigBytes(whole));
}

const char* const kArchitectures[] = {
    "llama31",
    "llama31/variants/dynamic",
    "llama31/variants/yarn",
    "qwen2",
    "qwen3",
    "mistral",
    "gemma2",
    "gemma3_text",
    "qwen3_moe",
    "mixtral",
    "phi3",
};

std::string ArchFolder(const std::string& name) { return testing::GoldenDir() + "/arch/" + name; }

testing::JsonFields ReadFields(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  const auto object = JsonObject::Parse(text);
  EXPECT_TRUE(object.ok()) << path << ": " << object.status();
  testing::JsonFields fields;
  if (object.ok()) {
    for (const std::string& key : object->Keys()) fields[key] = object->Text(key);
  }
  return fields;
}

bool UseFields(const testing::JsonFields& fields) {
  const std::string text = testing::JsonText(fields);
  return UseConfigBytes(std::as_bytes(std::span(text)));
}

// Every setting of every family, given each telling value, and settings of other families.
TEST(DamagedFilesTest, ConfigsOfEveryFamilyEndInAStatus) {
  const std::string values[] = {"null",       "0",     "1",        "-1",
                                "3",          "1e-30", "1e30",     "0.5",
                                "{}",         "[]",    "[0,1,-1]", "true",
                                "2147483647", "16",    "\"x\"",    "64",
                                "[\"x\"]",    "1000",  "false",    "9223372036854775807"};
  const char* const others[] = {"layer_types",       "no_rope_layers",     "partial_rotary_factor",
                                "rope_scaling",      "rope_parameters",    "sliding_window",
                                "num_local_experts", "use_sliding_window", "text_config"};
  int refused = 0;
  for (const std::string architecture : kArchitectures) {
    const testing::JsonFields fields = ReadFields(ArchFolder(architecture) + "/config.json");
    EXPECT_TRUE(UseFields(fields)) << architecture;
    std::vector<std::string> keys(std::begin(others), std::end(others));
    for (const auto& [key, value] : fields) keys.push_back(key);
    for (const std::string& key : keys) {
      for (const std::string& value : values) {
        SCOPED_TRACE(absl::StrCat(architecture, ", ", key, " is ", value));
        testing::JsonFields changed = fields;
        changed[key] = value;
        if (!UseFields(changed)) ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

// As above, of scalings and their settings.
TEST(DamagedFilesTest, RopeSettingsOfEveryKindEndInAStatus) {
  const std::string types[] = {"linear", "dynamic", "llama3", "yarn", "longrope", "default"};
  const std::string keys[] = {"factor",
                              "original_max_position_embeddings",
                              "attention_factor",
                              "beta_fast",
                              "beta_slow",
                              "low_freq_factor",
                              "high_freq_factor",
                              "mscale",
                              "mscale_all_dim",
                              "rope_theta",
                              "partial_rotary_factor",
                              "short_factor",
                              "long_factor",
                              "truncate"};
  const std::string values[] = {"0",
                                "1",
                                "-1",
                                "1e-30",
                                "1e30",
                                "1e-300",
                                "1e300",
                                "64",
                                "2",
                                "0.5",
                                "null",
                                "[]",
                                "[1,1,1,1,1,1,1,1]",
                                "true"};
  int used = 0;
  for (const std::string& type : types) {
    testing::JsonFields scaling = {{"rope_type", "\"" + type + "\""},
                                   {"factor", "4"},
                                   {"original_max_position_embeddings", "64"},
                                   {"low_freq_factor", "1"},
                                   {"high_freq_factor", "4"},
                                   {"short_factor", "[1,1,1,1,1,1,1,1]"},
                                   {"long_factor", "[1,1,1,1,1,1,1,1]"}};
    for (const std::string& key : keys) {
      for (const std::string& value : values) {
        SCOPED_TRACE(absl::StrCat(type, ", ", key, " is ", value));
        testing::JsonFields changed = scaling;
        changed[key] = value;
        testing::JsonFields fields = testing::SmallLlamaConfig();
        fields["rope_scaling"] = testing::JsonText(changed);
        if (UseFields(fields)) ++used;
      }
    }
  }
  EXPECT_GT(used, 300);
}

TEST(DamagedFilesTest, GgufSettingsOfEveryFamilyEndInAStatus) {
  using Value = testing::GgufBuilder::Value;
  const Value values[] = {0u,
                          1u,
                          3u,
                          -1,
                          0xFFFFFFFFu,
                          std::uint64_t{1} << 62,
                          0.0f,
                          -1.0f,
                          1e30f,
                          std::numeric_limits<float>::quiet_NaN(),
                          true,
                          std::string("x"),
                          std::vector<std::int32_t>{},
                          std::vector<std::int32_t>{0, 1, -1},
                          std::vector<float>{0.5f, -1.0f}};
  const char* const others[] = {"attention.sliding_window",
                                "attention.sliding_window_pattern",
                                "attention.scale",
                                "rope.freq_base_swa",
                                "rope.scaling.type",
                                "rope.scaling.attn_factor",
                                "rope.scaling.factor",
                                "rope.scaling.yarn_beta_fast",
                                "expert_count",
                                "expert_used_count",
                                "expert_feed_forward_length"};
  int refused = 0;
  for (const std::string architecture : kArchitectures) {
    if (architecture.find("variants") != std::string::npos) continue;  // no weights
    const auto builder = testing::ConvertToGguf(ArchFolder(architecture),
                                                {.matrices = testing::GgufMatrices::kAsStored});
    ASSERT_TRUE(builder.ok()) << builder.status();
    EXPECT_TRUE(UseGgufBytes(builder->Build())) << architecture;
    const std::string name = std::get<std::string>(builder->metadata.front().second);
    std::vector<std::string> keys;
    for (const char* other : others) keys.push_back(absl::StrCat(name, ".", other));
    for (const auto& [key, value] : builder->metadata) {
      if (key.starts_with(name)) keys.push_back(key);
    }
    for (const std::string& key : keys) {
      for (std::size_t i = 0; i < std::size(values); ++i) {
        SCOPED_TRACE(absl::StrCat(architecture, ", ", key, ", value ", i));
        testing::GgufBuilder changed = *builder;
        changed.Set(key, values[i]);
        if (!UseGgufBytes(changed.Build())) ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
}

// Inputs that broke a parser once, or were made to: tests/fuzz/regressions/<parser>/*.
TEST(DamagedFilesTest, FormerFindingsStayFixed) {
  const std::filesystem::path root = BATON_SOURCE_DIR "/tests/fuzz/regressions";
  int replayed = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    SCOPED_TRACE(entry.path().string());
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    const std::string parser = entry.path().parent_path().filename().string();
    if (parser == "gguf") UseGgufBytes(bytes);
    if (parser == "safetensors") UseSafetensorsBytes(bytes);
    if (parser == "config_json") UseConfigBytes(bytes);
    ++replayed;
  }

  EXPECT_GT(replayed, 0) << "no regression inputs under " << root;
}

}  // namespace
}  // namespace baton::checkpoint
