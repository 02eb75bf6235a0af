#include "checkpoint/safetensors_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/safetensors_builder.h"

namespace baton::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SafetensorsBuilder;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

SafetensorsBuilder TwoTensors() {
  SafetensorsBuilder builder;
  builder.tensors = {
      {.name = "a", .dtype = "F32", .shape = {2}, .data = Bytes({0, 0, 0x80, 0x3F, 0, 0, 0, 0x40})},
      {.name = "b", .dtype = "BF16", .shape = {2, 1}, .data = Bytes({0x80, 0x3F, 0, 0x40})}};
  return builder;
}

TEST(SafetensorsFileTest, ListsTensorsWithTheirData) {
  const std::vector<std::byte> bytes = TwoTensors().Build();

  const auto tensors = ParseSafetensors(bytes);

  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ(tensors->at("a").dtype, DType::kF32);
  EXPECT_THAT(tensors->at("b").shape, ElementsAre(2, 1));
  EXPECT_EQ(tensors->at("b").data.size(), 4u);
  EXPECT_EQ(tensors->at("b").data[3], std::byte{0x40});
}

TEST(SafetensorsFileTest, KeepsTypesItDoesNotComputeWithAsUnsupported) {
  SafetensorsBuilder builder = TwoTensors();
  builder.tensors[0].dtype = "I64";
  builder.tensors[0].shape = {};

  const std::vector<std::byte> bytes = builder.Build();
  const auto tensors = ParseSafetensors(bytes);

  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_FALSE(tensors->at("a").dtype.has_value());
  EXPECT_EQ(tensors->at("a").type_name, "I64");
}

struct Corruption {
  std::string name;
  std::function<void(SafetensorsBuilder&)> damage;
  absl::StatusCode code;
  std::string message;
};

void PrintTo(const Corruption& corruption, std::ostream* out) { *out << corruption.name; }

class SafetensorsCorruptionTest : public ::testing::TestWithParam<Corruption> {};

TEST_P(SafetensorsCorruptionTest, IsRefusedWithItsReason) {
  SafetensorsBuilder builder = TwoTensors();
  GetParam().damage(builder);
  const std::vector<std::byte> bytes = builder.Build();

  const auto tensors = ParseSafetensors(bytes);

  ASSERT_FALSE(tensors.ok());
  EXPECT_EQ(tensors.status().code(), GetParam().code) << tensors.status();
  EXPECT_THAT(std::string(tensors.status().message()), HasSubstr(GetParam().message));
}

const Corruption kCorruptions[] = {
    {"HeaderBeyondFile", [](auto& b) { b.header_length = 1000; }, kInvalid, "file is truncated"},
    {"HugeHeader", [](auto& b) { b.header_length = 1LL << 60; }, kInvalid,
     "not a safetensors file: header of 1152921504606846976 bytes"},
    {"NotJson", [](auto& b) { b.header = "{\"a\":"; }, kInvalid, "header is not a JSON object"},
    {"JsonArray", [](auto& b) { b.header = "[1]"; }, kInvalid, "header is not a JSON object"},
    {"DeepNesting", [](auto& b) { b.header = std::string(100000, '['); }, kInvalid,
     "header is not a JSON object"},
    {"EntryIsNumber", [](auto& b) { b.header = R"({"a":1})"; }, kInvalid,
     "tensor 'a': malformed entry: must be an object"},
    {"NoType", [](auto& b) { b.header = R"({"a":{"shape":[1],"data_offsets":[0,4]}})"; }, kInvalid,
     "dtype must be a string"},
    {"NoShape", [](auto& b) { b.header = R"({"a":{"dtype":"F32","data_offsets":[0,4]}})"; },
     kInvalid, "has no shape"},
    {"NoOffsets", [](auto& b) { b.header = R"({"a":{"dtype":"F32","shape":[1]}})"; }, kInvalid,
     "has no data_offsets"},
    {"OneOffset",
     [](auto& b) { b.header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})"; },
     kInvalid, "data_offsets must hold two numbers"},
    {"FractionalShape",
     [](auto& b) { b.header = R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})"; },
     kInvalid, "shape must hold natural numbers"},
    {"UnknownType", [](auto& b) { b.tensors[0].dtype = "F7"; },
     absl::StatusCode::kFailedPrecondition,
     "tensor 'a': unknown element type 'F7'; supported: F32, F16, BF16"},
    {"NegativeOffset",
     [](auto& b) { b.header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})"; },
     kInvalid, "data_offsets must hold natural numbers"},
    {"EndBeforeBegin",
     [](auto& b) {
       b.tensors[0].begin = 8;
       b.tensors[0].end = 0;
     },
     kInvalid, "tensor 'a': data lies outside the file: offsets [8, 0] of 12 bytes"},
    {"EndOutside", [](auto& b) { b.tensors[1].end = 1LL << 50; }, kInvalid,
     "tensor 'b': data lies outside the file"},
    {"SizeDisagrees", [](auto& b) { b.tensors[0].shape = {3}; }, kInvalid,
     "tensor 'a': data size disagrees with the shape: 8 bytes for [3] of F32"},
    {"ShapeOverflows",
     [](auto& b) {
       b.tensors[0].shape = {1LL << 62, 2};
     },
     kInvalid, "data size disagrees with the shape"},
    {"ZeroSize",
     [](auto& b) {
       b.tensors[0].shape = {0};
       b.tensors[0].data.clear();
     },
     kInvalid, "data size disagrees with the shape: 0 bytes for [0]"},
    {"FiveDimensions",
     [](auto& b) {
       b.tensors[0].shape = {1, 1, 1, 1, 2};
     },
     kInvalid, "shape must be an array of at most 4 numbers"},
    {"NameTwice", [](auto& b) { b.tensors[1].name = "a"; }, kInvalid,
     "tensor 'a': name given twice"},
    {"Overlap",
     [](auto& b) {
       b.tensors[1].begin = 4;
       b.tensors[1].end = 8;
     },
     kInvalid, "tensors overlap: 'a' and 'b'"},
    {"Hole",
     [](auto& b) {
       b.tensors[1].data.resize(8);
       b.tensors[1].end = 12;
     },
     kInvalid, "tensor data has holes: 16 bytes, tensors take 12"},
    {"Misaligned",
     [](auto& b) {
       std::string header = b.Header();
       b.header = header + "  ";
     },
     kInvalid, "tensor 'a': misaligned data"},
};

INSTANTIATE_TEST_SUITE_P(Every, SafetensorsCorruptionTest, ::testing::ValuesIn(kCorruptions),
                         [](const auto& corruption) { return corruption.param.name; });

TEST(SafetensorsFileTest, EveryTruncationIsRefused) {
  const std::vector<std::byte> whole = TwoTensors().Build();

  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<long>(length));
    EXPECT_EQ(ParseSafetensors(part).status().code(), kInvalid) << length;
  }
}

}  // namespace
}  // namespace baton::checkpoint
