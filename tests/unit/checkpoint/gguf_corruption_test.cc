// What is wrong with a GGUF file is said with file, tensor and expectation, whatever it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "checkpoint/gguf_checkpoint.h"
#include "tests/support/gguf_builder.h"

namespace baton::checkpoint {
namespace {

using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::SmallLlamaGguf;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kFailedPrecondition;

struct Corruption {
  std::string name;
  std::function<void(GgufBuilder&)> damage;
  absl::StatusCode code;
  std::string message;  // part of it
};

void PrintTo(const Corruption& corruption, std::ostream* out) { *out << corruption.name; }

class GgufCorruptionTest : public ::testing::TestWithParam<Corruption> {};

TEST_P(GgufCorruptionTest, IsRefusedWithItsReason) {
  GgufBuilder builder = SmallLlamaGguf();
  GetParam().damage(builder);
  const std::vector<std::byte> bytes = builder.Build();

  const auto model = OpenGgufFromMemory(bytes, "dir/small.gguf");

  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), GetParam().code) << model.status();
  EXPECT_THAT(std::string(model.status().message()), HasSubstr(GetParam().message));
  EXPECT_THAT(std::string(model.status().message()), StartsWith("dir/small.gguf: "));
}

// Damage to the container: header, counts, list of tensors.
const Corruption kContainer[] = {
    {"Magic", [](auto& b) { b.magic = 0x12345678; }, kInvalid, "not a GGUF file"},
    {"VersionOne", [](auto& b) { b.version = 1; }, kUnsupported, "version not read: 1"},
    {"VersionFour", [](auto& b) { b.version = 4; }, kUnsupported, "must be 2 or 3"},
    {"BigEndian", [](auto& b) { b.version = 0x03000000; }, kUnsupported, "big-endian"},
    {"HugePairCount", [](auto& b) { b.num_pairs = 1LL << 60; }, kInvalid,
     "metadata count cannot be: 1152921504606846976"},
    {"HugeTensorCount", [](auto& b) { b.num_tensors = std::numeric_limits<std::int64_t>::max(); },
     kInvalid, "tensor count cannot be"},
    {"KeyTwice", [](auto& b) { b.metadata.push_back(b.metadata.front()); }, kInvalid,
     "metadata key given twice: 'general.architecture'"},
    {"AlignmentZero", [](auto& b) { b.Set("general.alignment", 0u); }, kInvalid,
     "general.alignment out of range: 0"},
    {"AlignmentOdd", [](auto& b) { b.Set("general.alignment", 24u); }, kInvalid,
     "must be a power of two"},
    {"AlignmentText", [](auto& b) { b.Set("general.alignment", std::string("32")); }, kInvalid,
     "'general.alignment': wrong type, must be an integer"},
    {"TensorTwice", [](auto& b) { b.tensors.push_back(b.FindTensor("output_norm.weight")); },
     kInvalid, "tensor 'output_norm.weight': name given twice"},
    {"OffsetOutside", [](auto& b) { b.FindTensor("blk.1.ffn_up.weight").offset = 1LL << 40; },
     kInvalid, "tensor 'blk.1.ffn_up.weight': data lies outside the file"},
    {"OffsetNearOverflow",
     [](auto& b) {
       b.FindTensor("blk.1.ffn_up.weight").offset = std::numeric_limits<std::int64_t>::max() - 31;
     },
     kInvalid, "data lies outside the file"},
    {"OffsetMisaligned", [](auto& b) { b.FindTensor("blk.0.attn_q.weight").offset = 17; }, kInvalid,
     "tensor 'blk.0.attn_q.weight': misaligned data: offset 17, must be a multiple of 32"},
    {"Overlap", [](auto& b) { b.FindTensor("blk.0.attn_q.weight").offset = 0; }, kInvalid,
     "tensors overlap: "},
    {"NoDimensions", [](auto& b) { b.tensors[0].shape = {}; }, kInvalid,
     "tensor 'token_embd.weight': 0 dimensions, must be 1..4"},
    {"FiveDimensions",
     [](auto& b) {
       b.tensors[0].shape = {1, 1, 1, 8, 32};
     },
     kInvalid, "5 dimensions, must be 1..4"},
    {"ZeroSize",
     [](auto& b) {
       b.tensors[0].shape = {0, 32};
     },
     kInvalid, "impossible shape: [0, 32]"},
    {"NegativeSize",
     [](auto& b) {
       b.tensors[0].shape = {-8, 32};
     },
     kInvalid, "impossible shape"},
    {"ShapeOverflow",
     [](auto& b) {
       b.tensors[0].shape = {1LL << 40, 1LL << 40};
     },
     kInvalid, "impossible shape"},
    {"ShapeTooLargeForFile",
     [](auto& b) {
       b.tensors[0].shape = {1LL << 30, 32};
     },
     kInvalid, "tensor 'token_embd.weight': data lies outside the file"},
    {"PartialBlock",
     [](auto& b) {
       b.tensors[0].shape = {8, 33};
     },
     kInvalid, "rows are not whole blocks: 33 columns, Q8_0 has blocks of 32"},
    {"UnknownType", [](auto& b) { b.tensors[0].type = 99; }, kUnsupported,
     "tensor 'token_embd.weight': unknown tensor type 99; supported: F32, F16, BF16, Q8_0"},
    {"OldType", [](auto& b) { b.tensors[0].type = 4; }, kUnsupported, "unknown tensor type 4"},
    {"SplitModel", [](auto& b) { b.Set("split.count", 3u); }, kUnsupported,
     "one of 3 parts of a split model, which are read from disk only"},
};

// Damage to what the model says about itself.
const Corruption kModel[] = {
    {"NoArchitecture", [](auto& b) { b.Remove("general.architecture"); }, kInvalid,
     "missing key: 'general.architecture'"},
    {"OtherArchitecture", [](auto& b) { b.Set("general.architecture", std::string("mamba")); },
     kUnsupported, "unsupported architecture: 'mamba'; supported: llama"},
    {"NoHiddenSize", [](auto& b) { b.Remove("llama.embedding_length"); }, kInvalid,
     "missing key: 'embedding_length', the hidden size"},
    {"ZeroLayers", [](auto& b) { b.Set("llama.block_count", 0u); }, kInvalid,
     "number of layers out of range: 0, must be 1..1024"},
    {"AbsurdLayers", [](auto& b) { b.Set("llama.block_count", 4000000000u); }, kInvalid,
     "number of layers out of range: 4000000000"},
    {"MoreLayersThanTensors", [](auto& b) { b.Set("llama.block_count", 3u); }, kInvalid,
     "missing tensor: 'blk.2.attn_norm.weight', expected with shape [32]"},
    {"ZeroHeads", [](auto& b) { b.Set("llama.attention.head_count", 0u); }, kInvalid,
     "number of attention heads out of range: 0"},
    {"HeadsDoNotDivide", [](auto& b) { b.Set("llama.attention.head_count", 3u); }, kInvalid,
     "heads do not divide the hidden size: 3 heads, hidden size 32"},
    {"KvHeadsDoNotDivide",
     [](auto& b) {
       b.Set("llama.attention.head_count", 4u);
       b.Set("llama.attention.head_count_kv", 3u);
     },
     kInvalid, "KV heads do not divide the heads: 4 heads, 3 KV heads"},
    {"KvHeadsDifferByLayer",
     [](auto& b) {
       b.Set("llama.attention.head_count_kv", std::vector<std::int32_t>{1, 2});
     },
     kUnsupported, "'llama.attention.head_count_kv' differs between layers"},
    {"TextForNumber", [](auto& b) { b.Set("llama.block_count", std::string("2")); }, kInvalid,
     "metadata 'llama.block_count': wrong type, must be an integer"},
    {"NoEpsilon", [](auto& b) { b.Remove("llama.attention.layer_norm_rms_epsilon"); }, kInvalid,
     "missing key: 'llama.attention.layer_norm_rms_epsilon'"},
    {"NanEpsilon",
     [](auto& b) {
       b.Set("llama.attention.layer_norm_rms_epsilon", std::numeric_limits<float>::quiet_NaN());
     },
     kInvalid, "RMS norm epsilon out of range"},
    {"NegativeRopeBase", [](auto& b) { b.Set("llama.rope.freq_base", -1.0f); }, kInvalid,
     "rope base out of range: -1"},
    {"OddRopeDimensions", [](auto& b) { b.Set("llama.rope.dimension_count", 15u); }, kInvalid,
     "rotated dimensions out of range: 15"},
    {"RopeBeyondHead", [](auto& b) { b.Set("llama.rope.dimension_count", 18u); }, kInvalid,
     "must be even and at most the head size 16"},
    {"UnknownScaling", [](auto& b) { b.Set("llama.rope.scaling.type", std::string("ntk")); },
     kUnsupported, "unsupported rope scaling: 'ntk'; supported: none, linear, yarn, longrope"},
    {"YarnAttentionFactor",
     [](auto& b) {
       b.Set("llama.rope.scaling.type", std::string("yarn"));
       b.Set("llama.rope.scaling.yarn_attn_factor", 1.5f);
     },
     kUnsupported, "'llama.rope.scaling.yarn_attn_factor' is 1.5, must be 1"},
    {"ScalingOutOfRange", [](auto& b) { b.Set("llama.rope.scale_linear", 1e30f); }, kInvalid,
     "context length out of range: 1.28e+32 after rope scaling by 1e+30"},
    {"ExpertsWithoutTensors",
     [](auto& b) {
       b.Set("llama.expert_count", 8u);
       b.Set("llama.expert_used_count", 2u);
     },
     kInvalid, "missing tensor: 'blk.0.ffn_gate_inp.weight', expected with shape [8, 32]"},
    {"AbsurdExperts",
     [](auto& b) {
       b.Set("llama.expert_count", 4000000000u);
       b.Set("llama.expert_used_count", 2u);
     },
     kInvalid, "number of experts out of range: -1"},
    {"ValueSizeDiffers", [](auto& b) { b.Set("llama.attention.value_length", 8u); }, kUnsupported,
     "key and value head sizes differ: 16 and 8"},
    {"VocabularySizeDiffers", [](auto& b) { b.Set("llama.vocab_size", 9u); }, kInvalid,
     "vocabulary size disagrees: 'llama.vocab_size' says 9, there are 8 tokens"},
    {"MissingTensor", [](auto& b) { b.RemoveTensor("blk.1.attn_k.weight"); }, kInvalid,
     "missing tensor: 'blk.1.attn_k.weight', expected with shape [16, 32]"},
    {"WrongShape",
     [](auto& b) {
       b.FindTensor("blk.0.ffn_up.weight").shape = {32, 64};
     },
     kInvalid, "tensor 'blk.0.ffn_up.weight': wrong shape: [32, 64], expected [64, 32]"},
    {"VectorForMatrix", [](auto& b) { b.FindTensor("blk.0.ffn_up.weight").shape = {64 * 32}; },
     kInvalid, "wrong shape: [2048], expected [64, 32]"},
    {"UnsupportedType", [](auto& b) { b.FindTensor("blk.0.attn_q.weight").type = 24; },
     kUnsupported, "tensor 'blk.0.attn_q.weight': unsupported tensor type: I8, supported: F32"},
    {"QuantizedNorm", [](auto& b) { b.FindTensor("output_norm.weight").type = 8; }, kInvalid,
     "tensor 'output_norm.weight': wrong type: Q8_0, a vector must be F32, F16 or BF16"},
    {"ForeignTensor",
     [](auto& b) {
       auto tensor = b.FindTensor("output_norm.weight");
       tensor.name = "blk.0.attn_q_norm.weight";
       b.tensors.push_back(tensor);
     },
     kUnsupported, "unknown tensor: 'blk.0.attn_q_norm.weight' is no part of architecture llama"},
    {"RopeFactorsShape",
     [](auto& b) {
       auto tensor = b.FindTensor("output_norm.weight");
       tensor.name = "rope_freqs.weight";
       b.tensors.push_back(tensor);
     },
     kInvalid, "tensor 'rope_freqs.weight': wrong shape or type: [32] F32, expected [8] F32"},
};

// Damage to the vocabulary.
const Corruption kVocabulary[] = {
    {"NoTokens", [](auto& b) { b.Remove("tokenizer.ggml.tokens"); }, kInvalid,
     "missing key: 'tokenizer.ggml.tokens'"},
    {"TokensAreNumbers",
     [](auto& b) {
       b.Set("tokenizer.ggml.tokens", std::vector<std::int32_t>{1, 2});
     },
     kInvalid, "'tokenizer.ggml.tokens': wrong type, must be an array of strings"},
    {"NoTypes", [](auto& b) { b.Remove("tokenizer.ggml.token_type"); }, kInvalid,
     "missing key: 'tokenizer.ggml.token_type'"},
    {"NoMerges", [](auto& b) { b.Remove("tokenizer.ggml.merges"); }, kInvalid,
     "missing key: 'tokenizer.ggml.merges'"},
    {"TooFewTypes",
     [](auto& b) {
       b.Set("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 1});
     },
     kInvalid, "'tokenizer.ggml.token_type': 2 entries, expected 8"},
    {"TypeOutOfRange",
     [](auto& b) {
       b.Set("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 3, 1, 1, 1, 1, 1, 7});
     },
     kInvalid, "token type out of range: 7, must be 0..6"},
    {"TooManyScores", [](auto& b) { b.Set("tokenizer.ggml.scores", std::vector<float>(9, 0.0f)); },
     kInvalid, "'tokenizer.ggml.scores': 9 entries, expected 8"},
    {"EosOutOfRange", [](auto& b) { b.Set("tokenizer.ggml.eos_token_id", 8u); }, kInvalid,
     "'tokenizer.ggml.eos_token_id': token id out of range: 8, must be 0..7"},
    {"BosMissing", [](auto& b) { b.Set("tokenizer.ggml.add_bos_token", true); }, kInvalid,
     "missing key: 'tokenizer.ggml.bos_token_id'"},
    {"FlagIsNumber", [](auto& b) { b.Set("tokenizer.ggml.add_bos_token", 1u); }, kInvalid,
     "'tokenizer.ggml.add_bos_token': wrong type, must be a boolean"},
    {"TemplateIsNumber", [](auto& b) { b.Set("tokenizer.chat_template", 1u); }, kInvalid,
     "'tokenizer.chat_template': wrong type, must be a string"},
};

std::string NameOf(const ::testing::TestParamInfo<Corruption>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Container, GgufCorruptionTest, ::testing::ValuesIn(kContainer), NameOf);
INSTANTIATE_TEST_SUITE_P(Model, GgufCorruptionTest, ::testing::ValuesIn(kModel), NameOf);
INSTANTIATE_TEST_SUITE_P(Vocabulary, GgufCorruptionTest, ::testing::ValuesIn(kVocabulary), NameOf);

TEST(GgufTruncationTest, EveryLengthIsRefused) {
  const std::vector<std::byte> whole = SmallLlamaGguf().Build();

  for (std::size_t length = 0; length < whole.size(); ++length) {
    // A copy of its own, so that the address sanitizer sees a read past its end.
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<long>(length));
    const auto model = OpenGgufFromMemory(part, "small.gguf");
    ASSERT_FALSE(model.ok()) << length;
    ASSERT_EQ(model.status().code(), kInvalid) << length << ": " << model.status();
  }
}

}  // namespace
}  // namespace baton::checkpoint
