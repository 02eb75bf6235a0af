// AWQ and GPTQ linear maps: three packed independently (tests/golden/quant/awq_gptq), and others by
// tests/support/awq_gptq_packer.
#include "checkpoint/int4_repacking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/safetensors_file.h"
#include "tests/support/awq_gptq_packer.h"
#include "tests/support/test_paths.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;
using testing::Int4Packing;
using testing::SafetensorsBuilder;

absl::StatusOr<std::optional<QuantizationConfig>> ReadConfig(const std::string& json) {
  const auto object = JsonObject::Parse("{\"quantization_config\":" + json + "}");
  if (!object.ok()) return object.status();
  return ReadQuantizationConfig(*object);
}

// Row `row` of X.weight with every column where its input is.
std::vector<float> Row(const StoredTensor& weight, std::int64_t row) {
  const std::int64_t columns = weight.shape[1];
  const std::size_t row_bytes = weight.data.size() / static_cast<std::size_t>(weight.shape[0]);
  std::vector<float> stored(static_cast<std::size_t>(columns));
  DequantizeRow(*weight.dtype, weight.data.data() + static_cast<std::size_t>(row) * row_bytes,
                columns, stored.data());
  if (weight.column_order.empty()) return stored;
  std::vector<float> placed(stored.size());
  for (std::size_t c = 0; c < stored.size(); ++c) {
    placed[static_cast<std::size_t>(weight.column_order[c])] = stored[c];
  }
  return placed;
}

class GoldenMapTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenMapTest, HasExactlyTheWeightsOfItsFormat) {
  const std::string folder = testing::GoldenDir() + "/quant/awq_gptq/" + GetParam();
  const auto text = ReadTextFile(folder + "/config.json", 1 << 16);
  const auto packed = MappedFile::Open(folder + "/model.safetensors");
  const auto expected_file = MappedFile::Open(folder + "/expected.safetensors");
  ASSERT_TRUE(text.ok() && packed.ok() && expected_file.ok()) << folder;
  const auto config = ReadQuantizationConfig(*JsonObject::Parse(*text));
  ASSERT_TRUE(config.ok()) << config.status();
  StoredTensors stored = *ParseSafetensors((*packed)->bytes());
  const StoredTensors expected = *ParseSafetensors((*expected_file)->bytes());
  RepackedWeights memory;

  const absl::Status status = RepackLinearMaps(**config, stored, memory);

  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(stored.size(), 1u);
  const StoredTensor& weight = stored.at("linear.weight");
  ASSERT_EQ(weight.shape, expected.at("weight").shape);
  EXPECT_EQ(weight.dtype, DType::kInt4);
  EXPECT_EQ(weight.column_order.empty(), GetParam() != "gptq_act_order");
  std::vector<float> row(static_cast<std::size_t>(weight.shape[1]));
  for (std::int64_t r = 0; r < weight.shape[0]; ++r) {
    std::memcpy(row.data(),
                expected.at("weight").data.data() +
                    static_cast<std::size_t>(r) * row.size() * sizeof(float),
                row.size() * sizeof(float));
    ASSERT_EQ(Row(weight, r), row) << "row " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, GoldenMapTest,
                         ::testing::Values("awq_gemm", "gptq", "gptq_act_order"),
                         [](const auto& tested) { return tested.param; });

// Random maps in a file, packed one way.
struct PackedFile {
  explicit PackedFile(const Int4Packing& packing, int outputs = 24, int inputs = 96) {
    std::mt19937 random(3);
    std::normal_distribution<float> value;
    for (const char* name : {"a", "b"}) {
      std::vector<float> weight(static_cast<std::size_t>(outputs) * inputs);
      for (float& w : weight) w = value(random);
      auto map = testing::PackLinearMap(name, weight, outputs, inputs, packing, random);
      for (auto& tensor : map.tensors) builder.tensors.push_back(std::move(tensor));
      weights.push_back(std::move(map.weight));
    }
    config = packing.config();
  }
  // The messages of errors begin with the map's name.
  absl::Status Repack() {
    std::stable_partition(builder.tensors.begin(), builder.tensors.end(),
                          [](const auto& tensor) { return tensor.dtype != "F16"; });
    bytes = builder.Build();
    stored = *ParseSafetensors(bytes);
    return RepackLinearMaps(**ReadConfig(config), stored, memory);
  }
  SafetensorsBuilder builder;
  std::vector<std::vector<float>> weights;
  std::string config;
  std::vector<std::byte> bytes;
  StoredTensors stored;
  RepackedWeights memory;
};

TEST(Int4RepackingTest, KeepsTheValuesOfEveryPackingAndGroupSize) {
  using Method = Int4Packing::Method;
  for (const Method method : {Method::kAwqGemm, Method::kGptq, Method::kGptqV2}) {
    for (const int group_size : {32, 64, -1}) {  // 64: the last group of 96 inputs is half full
      for (const bool act_order : {false, true}) {
        if (act_order && method == Method::kAwqGemm) continue;
        SCOPED_TRACE(absl::StrCat("method ", static_cast<int>(method), ", groups of ", group_size,
                                  act_order ? ", act-order" : ""));
        PackedFile file({method, group_size, act_order});

        const absl::Status status = file.Repack();

        ASSERT_TRUE(status.ok()) << status;
        for (int map = 0; map < 2; ++map) {
          const StoredTensor& weight = file.stored.at(map == 0 ? "a.weight" : "b.weight");
          EXPECT_EQ(weight.column_order.empty(), !act_order || group_size < 0);
          for (std::int64_t r = 0; r < 24; ++r) {
            const float* expected = file.weights[map].data() + r * 96;
            ASSERT_EQ(Row(weight, r), std::vector<float>(expected, expected + 96)) << "row " << r;
          }
        }
      }
    }
  }
}

TEST(Int4RepackingTest, ScalesOfOtherTypesMustBeExactInF16) {
  for (const float scale : {0.015625f, 0.1f}) {
    PackedFile file({});
    auto& scales = file.builder.FindTensor("b.scales");
    const std::vector<float> values(scales.data.size() / 2, scale);
    scales.dtype = "F32";
    scales.data.resize(values.size() * sizeof(float));
    std::memcpy(scales.data.data(), values.data(), scales.data.size());

    const absl::Status status = file.Repack();

    EXPECT_EQ(status.ok(), scale == 0.015625f) << status;
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(status.message(), HasSubstr("tensor 'b.scales': scale 0.1 is not exact in F16"));
    }
  }
}

TEST(Int4RepackingTest, MapsWithTheSameOrderShareIt) {
  PackedFile file({.method = Int4Packing::Method::kGptq, .act_order = true});
  file.builder.FindTensor("b.g_idx").data = file.builder.FindTensor("a.g_idx").data;

  ASSERT_TRUE(file.Repack().ok());

  EXPECT_EQ(file.stored.at("a.weight").column_order.data(),
            file.stored.at("b.weight").column_order.data());
}

struct Damage {
  const char* name;
  std::function<void(SafetensorsBuilder&)> apply;
  absl::StatusCode code;
  const char* message;
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class Int4DamageTest : public ::testing::TestWithParam<Damage> {};

TEST_P(Int4DamageTest, IsRefusedWithItsReason) {
  PackedFile file({.method = Int4Packing::Method::kGptq, .act_order = true});
  GetParam().apply(file.builder);

  const absl::Status status = file.Repack();

  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(status.message(), HasSubstr("quantized map 'b': "));
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

void SetGroup(SafetensorsBuilder& builder, int input, std::int32_t group) {
  std::memcpy(builder.FindTensor("b.g_idx").data.data() + 4 * input, &group, 4);
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kFailedPrecondition;
const Damage kDamages[] = {
    {"NoZeros", [](auto& b) { b.RemoveTensor("b.qzeros"); }, kInvalid,
     "missing tensor: 'b.qzeros'"},
    {"NoScales", [](auto& b) { b.RemoveTensor("b.scales"); }, kInvalid,
     "missing tensor: 'b.scales'"},
    {"NoGroupIndex", [](auto& b) { b.RemoveTensor("b.g_idx"); }, kInvalid,
     "missing tensor: 'b.g_idx'"},
    {"GroupOutside", [](auto& b) { SetGroup(b, 5, 3); }, kInvalid, "input 5 is in group 3 of 3"},
    {"NegativeGroup", [](auto& b) { SetGroup(b, 5, -1); }, kInvalid, "input 5 is in group -1 of 3"},
    {"UnevenGroups",
     [](auto& b) {
       for (int i = 0; i < 96; ++i) SetGroup(b, i, i < 33 ? 0 : i < 64 ? 1 : 2);
     },
     kInvalid, "group 0 has 33 inputs, must have 32"},
    {"WrongZeros",
     [](auto& b) {
       b.FindTensor("b.qzeros").shape = {1, 9};
     },
     kInvalid, "'b.qzeros': wrong shape: [1, 9], expected [3, 3]"},
    {"WrongScales",
     [](auto& b) {
       b.FindTensor("b.scales").shape = {24, 3};
     },
     kInvalid, "'b.scales': wrong shape: [24, 3], expected [3, 24]"},
    {"OneDimension", [](auto& b) { b.FindTensor("b.qweight").shape = {12 * 24}; }, kInvalid,
     "'b.qweight': impossible shape: [288]"},
    {"OddInputs",
     [](auto& b) {
       b.FindTensor("b.qweight").shape = {18, 16};
     },
     kUnsupported, "144 inputs and 16 outputs; inputs must be a multiple of 32, outputs of 8"},
    {"OddOutputs",
     [](auto& b) {
       b.FindTensor("b.qweight").shape = {24, 12};
     },
     kUnsupported, "192 inputs and 12 outputs; inputs must be a multiple of 32, outputs of 8"},
    {"FloatCodes", [](auto& b) { b.FindTensor("b.qweight").dtype = "F32"; }, kUnsupported,
     "tensor 'b.qweight': type F32, must be I32"},
    {"WholeScales", [](auto& b) { b.FindTensor("b.scales").dtype = "I16"; }, kUnsupported,
     "tensor 'b.scales': type I16, must be F16, BF16 or F32"},
    {"WeightBesides",
     [](auto& b) {
       b.tensors.push_back({"b.weight", "I8", {2}, std::vector<std::byte>(2)});
     },
     kInvalid, "both qweight and weight are stored"},
};

INSTANTIATE_TEST_SUITE_P(Every, Int4DamageTest, ::testing::ValuesIn(kDamages),
                         [](const auto& tested) { return std::string(tested.param.name); });

struct Refusal {
  const char* name;
  const char* config;
  absl::StatusCode code;
  const char* message;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class QuantizationRefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(QuantizationRefusalTest, NamesWhatIsThereAndWhatIsSupported) {
  const auto config = ReadConfig(GetParam().config);

  EXPECT_EQ(config.status().code(), GetParam().code);
  EXPECT_THAT(config.status().message(), HasSubstr(GetParam().message));
  if (GetParam().code == kUnsupported) {
    EXPECT_THAT(config.status().message(), HasSubstr("; supported: awq (bits 4, version gemm"));
  }
}

const Refusal kRefusals[] = {
    {"Fp8", R"({"quant_method":"fp8"})", kUnsupported, "quant_method is 'fp8'"},
    {"BitsAndBytes", R"({"quant_method":"bitsandbytes","load_in_4bit":true})", kUnsupported,
     "quant_method is 'bitsandbytes'"},
    {"CompressedTensors", R"({"quant_method":"compressed-tensors"})", kUnsupported,
     "quant_method is 'compressed-tensors'"},
    {"NoMethod", R"({"bits":4,"group_size":128})", kUnsupported, "quant_method is 'missing'"},
    {"EightBits", R"({"quant_method":"gptq","bits":8,"group_size":128})", kUnsupported,
     "of method gptq: unsupported quantization: bits is '8'"},
    {"NoBits", R"({"quant_method":"awq","group_size":128})", kUnsupported, "bits is 'null'"},
    {"SmallGroups", R"({"quant_method":"awq","bits":4,"group_size":16})", kUnsupported,
     "group_size is '16'"},
    {"NegativeGroups", R"({"quant_method":"awq","bits":4,"group_size":-2})", kUnsupported,
     "group_size is '-2'"},
    {"Gemv", R"({"quant_method":"awq","bits":4,"group_size":128,"version":"gemv"})", kUnsupported,
     "version is '\\\"gemv\\\"'"},
    {"NoZeroPoint", R"({"quant_method":"awq","bits":4,"group_size":64,"zero_point":false})",
     kUnsupported, "zero_point is 'false'"},
    {"Marlin", R"({"quant_method":"gptq","bits":4,"group_size":128,"checkpoint_format":"marlin"})",
     kUnsupported, "checkpoint_format is '\\\"marlin\\\"'"},
    {"OldMarlin", R"({"quant_method":"gptq","bits":4,"group_size":128,"is_marlin_format":true})",
     kUnsupported, "is_marlin_format is 'true'"},
    {"Dynamic", R"({"quant_method":"gptq","bits":4,"group_size":128,
                    "dynamic":{"-:lm_head":{},"+:.*down.*":{"bits":8}}})",
     kUnsupported, "dynamic is '+:.*down.*'"},
    {"TextBits", R"({"quant_method":"gptq","bits":"4","group_size":128})", kInvalid,
     "'bits': wrong type"},
};

INSTANTIATE_TEST_SUITE_P(Every, QuantizationRefusalTest, ::testing::ValuesIn(kRefusals),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(QuantizationConfigTest, ReadsWhatWritersWrite) {
  const auto awq = ReadConfig(R"({"quant_method":"AWQ","bits":4,"group_size":-1,"version":"GEMM",
                                  "zero_point":true,"modules_to_not_convert":["lm_head"]})");
  const auto v2 = ReadConfig(R"({"quant_method":"gptq","bits":4,"group_size":32,"sym":true,
                                 "desc_act":true,"format":"gptq_v2","checkpoint_format":"gptq_v2",
                                 "dynamic":{"-:.*gate.*":{}},"pack_dtype":"int32"})");
  const auto none = ReadConfig("null");

  ASSERT_TRUE(awq.ok() && v2.ok() && none.ok()) << awq.status() << v2.status();
  EXPECT_EQ((*awq)->group_size, 0);
  EXPECT_EQ((*awq)->zero_offset, 0);
  EXPECT_EQ((*v2)->group_size, 32);
  EXPECT_EQ((*v2)->zero_offset, 0);
  EXPECT_TRUE((*v2)->needs_group_index);
  EXPECT_FALSE(none->has_value());
}

// A whole directory, whose maps are packed.
class PackedDirectoryTest : public ::testing::Test {
 protected:
  testing::PackedDirectory directory_{testing::GoldenDir() + "/arch/llama31",
                                      {.method = Int4Packing::Method::kGptq, .act_order = true},
                                      11};
};

TEST_F(PackedDirectoryTest, OpensWithItsMapsRepackedAndTheRestAsItIs) {
  const auto model = Checkpoint::Open(directory_.packed.path());

  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(directory_.num_packed, 3 * 7);
  EXPECT_EQ((*model)->Find("layers.1.down.weight")->dtype, DType::kInt4);
  EXPECT_EQ((*model)->Find("layers.1.down.weight")->shape, (std::vector<std::int64_t>{64, 128}));
  EXPECT_EQ((*model)->Find("layers.1.down.weight")->column_order.size(), 128u);
  EXPECT_EQ((*model)->Find("token_embedding.weight")->dtype, DType::kBF16);
}

TEST_F(PackedDirectoryTest, HashesRepackedWeightsAndTheirOrder) {
  const auto one = Checkpoint::Open(directory_.packed.path());
  const auto same = Checkpoint::Open(directory_.packed.path());
  const testing::PackedDirectory other(testing::GoldenDir() + "/arch/llama31",
                                       {.method = Int4Packing::Method::kGptq, .act_order = true},
                                       12);
  const auto different = Checkpoint::Open(other.packed.path());

  ASSERT_TRUE(one.ok() && same.ok() && different.ok());
  EXPECT_EQ((*one)->fingerprint(), (*same)->fingerprint());
  EXPECT_NE((*one)->fingerprint(), (*different)->fingerprint());
}

TEST_F(PackedDirectoryTest, IsRefusedWithoutTheConfigThatSaysHow) {
  directory_.packed.Write("config.json",
                          *ReadTextFile(directory_.plain.path() + "/config.json", 1 << 16));

  const auto model = Checkpoint::Open(directory_.packed.path());

  EXPECT_EQ(model.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(model.status().message(), HasSubstr("no quantization_config"));
}

// Old writers gave every map a bias.
TEST_F(PackedDirectoryTest, PassesOverABiasOfZerosOnly) {
  const std::string path = directory_.packed.path() + "/model.safetensors";
  for (const std::uint8_t byte : {0, 1}) {
    SafetensorsBuilder builder;
    const auto file = MappedFile::Open(path);
    const auto stored = ParseSafetensors((*file)->bytes());
    for (const auto& [name, tensor] : *stored) {
      if (name.ends_with("q_proj.bias")) continue;
      builder.tensors.push_back(
          {name, tensor.type_name, tensor.shape, {tensor.data.begin(), tensor.data.end()}});
    }
    builder.tensors.push_back({"model.layers.0.self_attn.q_proj.bias",
                               "F16",
                               {64},
                               std::vector<std::byte>(128, std::byte{byte})});
    std::stable_partition(builder.tensors.begin(), builder.tensors.end(),
                          [](const auto& tensor) { return tensor.dtype == "I32"; });
    testing::TempDirectory with_bias;
    with_bias.Write("config.json",
                    *ReadTextFile(directory_.packed.path() + "/config.json", 1 << 16));
    with_bias.Write("model.safetensors", builder.Build());

    const auto model = Checkpoint::Open(with_bias.path());

    EXPECT_EQ(model.ok(), byte == 0) << model.status();
    if (byte != 0) {
      EXPECT_THAT(model.status().message(), HasSubstr("unknown tensor"));
    }
  }
}

}  // namespace
}  // namespace baton::checkpoint
