#include "checkpoint/int4_repacking.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

using Method = QuantizationConfig::Method;

constexpr std::string_view kCodesSuffix = ".qweight";
constexpr int kPerWord = 8;  // codes of a 32-bit word
constexpr int kBlockColumns = 32;
constexpr int kBlockBytes = 19;
constexpr int kOutputsAtOnce = 64;  // a multiple of kPerWord

using Words = std::span<const std::uint32_t>;

// The tensors of one linear map, checked against each other.
struct PackedMap {
  Words codes;                        // AWQ: [inputs, outputs / 8], GPTQ: [inputs / 8, outputs]
  Words zeros;                        // [groups, outputs / 8]
  std::vector<std::uint16_t> scales;  // f16 [groups, outputs]
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t groups = 0;
  std::int64_t group_size = 0;
  std::span<const std::int32_t> group_of_input;  // empty: input / group_size
};

absl::StatusOr<const StoredTensor*> FindPart(const StoredTensors& stored, const std::string& name,
                                             std::string_view type) {
  const auto found = stored.find(name);
  if (found == stored.end()) {
    return absl::InvalidArgumentError(absl::StrCat("missing tensor: ", Quoted(name)));
  }
  if (!type.empty() && found->second.type_name != type) {
    return absl::FailedPreconditionError(absl::StrCat("tensor ", Quoted(name), ": type ",
                                                      found->second.type_name, ", must be ",
                                                      std::string(type)));
  }
  return &found->second;
}

absl::Status CheckPartShape(const std::string& name, const StoredTensor& part,
                            const std::vector<std::int64_t>& expected) {
  if (part.shape == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", Quoted(name), ": wrong shape: ", ShapeText(part.shape), ", expected ",
                   ShapeText(expected), " beside its qweight"));
}

template <class T>
std::span<const T> As(const StoredTensor& part) {  // the file's data is aligned to its elements
  return {reinterpret_cast<const T*>(part.data.data()), part.data.size() / sizeof(T)};
}

// Scales as f16. Those of other types must be exact in it, so that weights are what the file says.
absl::StatusOr<std::vector<std::uint16_t>> ReadScales(const std::string& name,
                                                      const StoredTensor& part) {
  if (!part.dtype.has_value() || BlockElements(*part.dtype) != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "tensor ", Quoted(name), ": type ", part.type_name, ", must be F16, BF16 or F32"));
  }
  const auto count = static_cast<std::size_t>(*ElementCount(part.shape));
  std::vector<std::uint16_t> scales(count);
  if (*part.dtype == DType::kF16) {
    std::memcpy(scales.data(), part.data.data(), part.data.size());
    return scales;
  }
  std::vector<float> values(count);
  DequantizeRow(*part.dtype, part.data.data(), static_cast<std::int64_t>(count), values.data());
  for (std::size_t i = 0; i < count; ++i) {
    scales[i] = FloatToHalf(values[i]);
    if (HalfToFloat(scales[i]) != values[i]) {
      return absl::FailedPreconditionError(
          absl::StrFormat("tensor %s: scale %g is not exact in F16; save the scales as F16",
                          Quoted(name), values[i]));
    }
  }
  return scales;
}

// Inputs and outputs, from the shape of qweight.
absl::Status ReadSizes(const QuantizationConfig& config, const std::string& name,
                       const StoredTensor& part, PackedMap& map) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() / kPerWord;
  if (part.shape.size() != 2 || part.shape[0] > kMost || part.shape[1] > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quoted(name), ": impossible shape: ", ShapeText(part.shape)));
  }
  const bool awq = config.method == Method::kAwq;
  map.inputs = part.shape[0] * (awq ? 1 : kPerWord);
  map.outputs = part.shape[1] * (awq ? kPerWord : 1);
  if (map.inputs % kBlockColumns != 0 || map.outputs % kPerWord != 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "tensor %s: %d inputs and %d outputs; inputs must be a multiple of 32, outputs of 8",
        Quoted(name), map.inputs, map.outputs));
  }
  map.group_size = config.group_size == 0 ? map.inputs : config.group_size;
  map.groups = (map.inputs + map.group_size - 1) / map.group_size;
  return absl::OkStatus();
}

absl::StatusOr<PackedMap> ReadMap(const QuantizationConfig& config, const std::string& name,
                                  const StoredTensors& stored) {
  PackedMap map;
  const std::string codes_name = absl::StrCat(name, std::string(kCodesSuffix));
  const std::string zeros_name = absl::StrCat(name, ".qzeros");
  const std::string scales_name = absl::StrCat(name, ".scales");
  const std::string index_name = absl::StrCat(name, ".g_idx");
  BATON_ASSIGN_OR_RETURN(const StoredTensor* codes, FindPart(stored, codes_name, "I32"));
  BATON_RETURN_IF_ERROR(ReadSizes(config, codes_name, *codes, map));
  map.codes = As<std::uint32_t>(*codes);
  BATON_ASSIGN_OR_RETURN(const StoredTensor* zeros, FindPart(stored, zeros_name, "I32"));
  BATON_RETURN_IF_ERROR(CheckPartShape(zeros_name, *zeros, {map.groups, map.outputs / kPerWord}));
  map.zeros = As<std::uint32_t>(*zeros);
  BATON_ASSIGN_OR_RETURN(const StoredTensor* scales, FindPart(stored, scales_name, ""));
  BATON_RETURN_IF_ERROR(CheckPartShape(scales_name, *scales, {map.groups, map.outputs}));
  BATON_ASSIGN_OR_RETURN(map.scales, ReadScales(scales_name, *scales));
  if (config.needs_group_index || stored.contains(index_name)) {
    BATON_ASSIGN_OR_RETURN(const StoredTensor* index, FindPart(stored, index_name, "I32"));
    BATON_RETURN_IF_ERROR(CheckPartShape(index_name, *index, {map.inputs}));
    map.group_of_input = As<std::int32_t>(*index);
  }
  return map;
}

// The inputs sorted by group, each group's in their order. Every group must be full, so that blocks
// of 32 sorted inputs share one.
absl::StatusOr<std::vector<std::int32_t>> SortByGroup(const PackedMap& map) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(map.inputs));
  std::iota(order.begin(), order.end(), 0);
  if (map.group_of_input.empty()) return order;
  std::vector<std::int64_t> members(static_cast<std::size_t>(map.groups));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int32_t group = map.group_of_input[i];
    if (group < 0 || group >= map.groups) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "g_idx: input %d is in group %d of %d; the file is damaged", i, group, map.groups));
    }
    ++members[static_cast<std::size_t>(group)];
  }
  for (std::int64_t g = 0; g < map.groups; ++g) {
    const std::int64_t full = std::min(map.group_size, map.inputs - g * map.group_size);
    if (members[static_cast<std::size_t>(g)] == full) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "g_idx: group %d has %d inputs, must have %d; the file is damaged or group_size wrong", g,
        members[static_cast<std::size_t>(g)], full));
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return map.group_of_input[a] < map.group_of_input[b];
  });
  return order;
}

// The nibbles of `count` words, eight neighbours of `out` each.
void UnpackInOrder(const std::uint32_t* words, std::int64_t count, std::uint8_t* out) {
  for (std::int64_t w = 0; w < count; ++w, out += kPerWord) {
    for (int n = 0; n < kPerWord; ++n) out[n] = (words[w] >> (4 * n)) & 15;
  }
}

// Nibble i of 16 bits as 16 bits at place i.
std::uint64_t SpreadNibbles(std::uint64_t four) {
  four = (four | four << 24) & 0x000000FF000000FF;
  return (four | four << 12) & 0x000F000F000F000F;
}

// The same of AWQ's order: nibbles 0 to 3 of a word are columns 0, 2, 4, 6, the others 1, 3, 5, 7.
void UnpackAwq(const std::uint32_t* words, std::int64_t count, std::uint8_t* out) {
  for (std::int64_t w = 0; w < count; ++w, out += kPerWord) {
    const std::uint64_t columns = SpreadNibbles(words[w] & 0xFFFF) | SpreadNibbles(words[w] >> 16)
                                                                         << 8;
    std::memcpy(out, &columns, kPerWord);
  }
}

using OutputCodes = std::array<std::uint8_t, kOutputsAtOnce>;

// Codes of one input for outputs [first, first + count).
void ReadCodes(Method method, const PackedMap& map, std::int64_t input, std::int64_t first,
               std::int64_t count, OutputCodes& codes) {
  if (method == Method::kAwq) {
    const std::int64_t word = (input * map.outputs + first) / kPerWord;
    return UnpackAwq(map.codes.data() + word, count / kPerWord, codes.data());
  }
  const std::uint32_t* words = map.codes.data() + input / kPerWord * map.outputs + first;
  const int shift = static_cast<int>(input % kPerWord) * 4;
  for (std::int64_t o = 0; o < count; ++o) codes[o] = (words[o] >> shift) & 15;
}

// Writes block `column` of rows [first, first + count): 32 inputs of one group.
void RepackBlocks(const QuantizationConfig& config, const PackedMap& map,
                  std::span<const std::int32_t> inputs, std::int64_t first, std::int64_t count,
                  std::size_t row_bytes, std::byte* out) {
  std::array<OutputCodes, kBlockColumns> codes = {};
  for (int c = 0; c < kBlockColumns; ++c) {
    ReadCodes(config.method, map, inputs[c], first, count, codes[c]);
  }
  const std::int64_t group =
      map.group_of_input.empty() ? inputs[0] / map.group_size : map.group_of_input[inputs[0]];
  OutputCodes zeros;
  const std::uint32_t* words = map.zeros.data() + (group * map.outputs + first) / kPerWord;
  if (config.method == Method::kAwq) {
    UnpackAwq(words, count / kPerWord, zeros.data());
  } else {
    UnpackInOrder(words, count / kPerWord, zeros.data());
  }
  for (int c = 0; c < kBlockColumns / 2; ++c) {  // makes the first half bytes of two nibbles
    for (int o = 0; o < kOutputsAtOnce; ++o) codes[c][o] |= codes[c + kBlockColumns / 2][o] << 4;
  }
  for (std::int64_t o = 0; o < count; ++o, out += row_bytes) {
    std::memcpy(out, &map.scales[group * map.outputs + first + o], sizeof(std::uint16_t));
    out[2] = static_cast<std::byte>(zeros[o] + config.zero_offset);
    for (int c = 0; c < kBlockColumns / 2; ++c) {
      out[3 + c] = static_cast<std::byte>(codes[c][o]);
    }
  }
}

std::vector<std::byte> RepackMap(const QuantizationConfig& config, const PackedMap& map,
                                 const std::vector<std::int32_t>& order) {
  const auto row_bytes = static_cast<std::size_t>(map.inputs / kBlockColumns) * kBlockBytes;
  std::vector<std::byte> blocks(row_bytes * static_cast<std::size_t>(map.outputs));
  for (std::int64_t column = 0; column < map.inputs; column += kBlockColumns) {
    const std::span<const std::int32_t> inputs(order.data() + column, kBlockColumns);
    std::byte* at = blocks.data() + column / kBlockColumns * kBlockBytes;
    for (std::int64_t first = 0; first < map.outputs; first += kOutputsAtOnce) {
      const std::int64_t count = std::min<std::int64_t>(kOutputsAtOnce, map.outputs - first);
      RepackBlocks(config, map, inputs, first, count, row_bytes,
                   at + static_cast<std::size_t>(first) * row_bytes);
    }
  }
  return blocks;
}

// `order` as kept in `memory`; empty when it changes nothing.
std::span<const std::int32_t> KeepOrder(std::vector<std::int32_t> order, RepackedWeights& memory) {
  if (std::is_sorted(order.begin(), order.end())) return {};
  for (const std::vector<std::int32_t>& kept : memory.column_orders) {
    if (kept == order) return kept;
  }
  return memory.column_orders.emplace_back(std::move(order));
}

bool IsZero(const StoredTensor& tensor) {
  return std::all_of(tensor.data.begin(), tensor.data.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

absl::Status RepackOne(const QuantizationConfig& config, const std::string& name,
                       StoredTensors& stored, RepackedWeights& memory) {
  BATON_ASSIGN_OR_RETURN(const PackedMap map, ReadMap(config, name, stored));
  BATON_ASSIGN_OR_RETURN(std::vector<std::int32_t> order, SortByGroup(map));
  StoredTensor weight{.dtype = DType::kInt4,
                      .type_name = std::string(DTypeName(DType::kInt4)),
                      .shape = {map.outputs, map.inputs}};
  weight.data = memory.blocks.emplace_back(RepackMap(config, map, order));
  weight.column_order = KeepOrder(std::move(order), memory);
  for (const char* suffix : {".qweight", ".qzeros", ".scales", ".g_idx"}) {
    stored.erase(absl::StrCat(name, suffix));
  }
  if (!stored.emplace(absl::StrCat(name, ".weight"), std::move(weight)).second) {
    return absl::InvalidArgumentError("both qweight and weight are stored");
  }
  const auto bias = stored.find(absl::StrCat(name, ".bias"));
  if (bias != stored.end()) bias->second.may_be_left = IsZero(bias->second);
  return absl::OkStatus();
}

}  // namespace

absl::Status RepackLinearMaps(const QuantizationConfig& config, StoredTensors& stored,
                              RepackedWeights& memory) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : stored) {
    if (!name.ends_with(kCodesSuffix)) continue;
    names.push_back(name.substr(0, name.size() - kCodesSuffix.size()));
  }
  for (const std::string& name : names) {
    const absl::Status status = RepackOne(config, name, stored, memory);
    if (!status.ok()) return Annotate(status, absl::StrCat("quantized map ", Quoted(name)));
  }
  return absl::OkStatus();
}

}  // namespace baton::checkpoint
