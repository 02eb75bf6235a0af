#include "tests/support/awq_gptq_packer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/tensor.h"
#include "common/check.h"

namespace baton::testing {
namespace {

using Method = Int4Packing::Method;
using Tensor = SafetensorsBuilder::Tensor;

template <class T>
Tensor MakeTensor(const std::string& name, const std::string& dtype,
                  std::vector<std::int64_t> shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {.name = name,
          .dtype = dtype,
          .shape = std::move(shape),
          .data = {bytes.begin(), bytes.end()}};
}

// The numbers a packing is made of, one a byte.
struct Codes {
  int inputs, outputs, groups;
  std::vector<int> group_of_input;
  std::vector<std::uint8_t> codes;    // [inputs, outputs]
  std::vector<std::uint8_t> zeros;    // [groups, outputs]
  std::vector<std::uint16_t> scales;  // f16 [groups, outputs]
};

std::vector<int> Groups(int inputs, const Int4Packing& packing, std::mt19937& random) {
  const int size = packing.group_size < 0 ? inputs : packing.group_size;
  std::vector<int> groups(inputs);
  for (int i = 0; i < inputs; ++i) groups[i] = i / size;
  if (packing.act_order) std::shuffle(groups.begin(), groups.end(), random);
  return groups;
}

Codes Quantize(const std::vector<float>& weight, int outputs, int inputs,
               const Int4Packing& packing, std::mt19937& random) {
  Codes q{.inputs = inputs, .outputs = outputs, .group_of_input = Groups(inputs, packing, random)};
  q.groups = 1 + *std::max_element(q.group_of_input.begin(), q.group_of_input.end());
  q.codes.resize(weight.size());
  q.zeros.resize(static_cast<std::size_t>(q.groups) * outputs);
  q.scales.resize(q.zeros.size());
  // AWQ's zeros are 0..15, those of GPTQ's first version 1..16, since one less is stored.
  const int least_zero = packing.method == Method::kGptq ? 1 : 0;
  for (int o = 0; o < outputs; ++o) {
    std::vector<float> low(q.groups), high(q.groups);
    for (int i = 0; i < inputs; ++i) {
      const int g = q.group_of_input[i];
      low[g] = std::min(low[g], weight[o * inputs + i]);
      high[g] = std::max(high[g], weight[o * inputs + i]);
    }
    for (int g = 0; g < q.groups; ++g) {
      const std::uint16_t scale = checkpoint::FloatToHalf((high[g] - low[g]) / 15);
      q.scales[g * outputs + o] = scale;
      const float zero = std::round(-low[g] / checkpoint::HalfToFloat(scale));
      q.zeros[g * outputs + o] = static_cast<std::uint8_t>(
          std::clamp(static_cast<int>(zero), least_zero, least_zero + 15));
    }
    for (int i = 0; i < inputs; ++i) {
      const int at = q.group_of_input[i] * outputs + o;
      const float steps = weight[o * inputs + i] / checkpoint::HalfToFloat(q.scales[at]);
      q.codes[i * outputs + o] = static_cast<std::uint8_t>(
          std::clamp(static_cast<int>(std::round(steps)) + q.zeros[at], 0, 15));
    }
  }
  return q;
}

std::vector<float> Values(const Codes& q) {
  std::vector<float> values(q.codes.size());
  for (int o = 0; o < q.outputs; ++o) {
    for (int i = 0; i < q.inputs; ++i) {
      const int at = q.group_of_input[i] * q.outputs + o;
      values[o * q.inputs + i] = static_cast<float>(q.codes[i * q.outputs + o] - q.zeros[at]) *
                                 checkpoint::HalfToFloat(q.scales[at]);
    }
  }
  return values;
}

// Words of eight outputs each: [rows, outputs / 8]. Nibble n is output 8 w + order[n].
std::vector<std::uint32_t> PackOutputs(const std::vector<std::uint8_t>& values, int outputs,
                                       const int (&order)[8], int subtract) {
  std::vector<std::uint32_t> words(values.size() / 8);
  for (std::size_t w = 0; w < words.size(); ++w) {
    const std::size_t row = w / (outputs / 8);
    const std::size_t first = row * outputs + w % (outputs / 8) * 8;
    for (int n = 0; n < 8; ++n) {
      words[w] |= static_cast<std::uint32_t>(values[first + order[n]] - subtract) << (4 * n);
    }
  }
  return words;
}

// Words of eight inputs each: [inputs / 8, outputs].
std::vector<std::uint32_t> PackInputs(const Codes& q) {
  std::vector<std::uint32_t> words(q.codes.size() / 8);
  for (int i = 0; i < q.inputs; ++i) {
    for (int o = 0; o < q.outputs; ++o) {
      words[i / 8 * q.outputs + o] |= std::uint32_t{q.codes[i * q.outputs + o]} << (i % 8 * 4);
    }
  }
  return words;
}

bool IsProjection(const Tensor& tensor) {
  for (const char* suffix : {"_proj.weight", ".w1.weight", ".w2.weight", ".w3.weight"}) {
    if (absl::EndsWith(tensor.name, suffix)) return tensor.shape.size() == 2;
  }
  return false;
}

std::vector<float> Floats(const Tensor& tensor) {
  const checkpoint::DType dtype = tensor.dtype == "BF16"  ? checkpoint::DType::kBF16
                                  : tensor.dtype == "F16" ? checkpoint::DType::kF16
                                                          : checkpoint::DType::kF32;
  std::vector<float> values(tensor.data.size() / checkpoint::BlockBytes(dtype));
  checkpoint::DequantizeRow(dtype, tensor.data.data(), static_cast<std::int64_t>(values.size()),
                            values.data());
  return values;
}

std::vector<Tensor> ReadTensors(const std::string& path) {
  const auto file = checkpoint::MappedFile::Open(path);
  BATON_CHECK(file.ok(), "cannot open the source's weights");
  const auto stored = checkpoint::ParseSafetensors((*file)->bytes());
  BATON_CHECK(stored.ok(), "cannot read the source's weights");
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : *stored) {
    tensors.push_back({.name = name,
                       .dtype = tensor.type_name,
                       .shape = tensor.shape,
                       .data = {tensor.data.begin(), tensor.data.end()}});
  }
  return tensors;
}

}  // namespace

std::string Int4Packing::config() const {
  const std::string size = absl::StrCat("\"bits\":4,\"group_size\":", group_size);
  if (method == Method::kAwqGemm) {
    return absl::StrCat("{\"quant_method\":\"awq\",\"version\":\"gemm\",\"zero_point\":true,", size,
                        ",\"modules_to_not_convert\":null}");
  }
  return absl::StrCat("{\"quant_method\":\"gptq\",\"checkpoint_format\":\"",
                      method == Method::kGptq ? "gptq" : "gptq_v2", "\",\"sym\":false,", size,
                      ",\"desc_act\":", act_order ? "true" : "false", "}");
}

PackedLinearMap PackLinearMap(const std::string& name, const std::vector<float>& weight,
                              int outputs, int inputs, const Int4Packing& packing,
                              std::mt19937& random) {
  constexpr int kPlain[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  constexpr int kAwq[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  const Codes q = Quantize(weight, outputs, inputs, packing, random);
  PackedLinearMap map{.tensors = {}, .weight = Values(q)};
  if (packing.method == Method::kAwqGemm) {
    map.tensors.push_back(MakeTensor(name + ".qweight", "I32", {inputs, outputs / 8},
                                     PackOutputs(q.codes, outputs, kAwq, 0)));
    map.tensors.push_back(MakeTensor(name + ".qzeros", "I32", {q.groups, outputs / 8},
                                     PackOutputs(q.zeros, outputs, kAwq, 0)));
  } else {
    const int subtract = packing.method == Method::kGptq ? 1 : 0;
    map.tensors.push_back(
        MakeTensor(name + ".qweight", "I32", {inputs / 8, outputs}, PackInputs(q)));
    map.tensors.push_back(MakeTensor(name + ".qzeros", "I32", {q.groups, outputs / 8},
                                     PackOutputs(q.zeros, outputs, kPlain, subtract)));
    map.tensors.push_back(MakeTensor(name + ".g_idx", "I32", {inputs}, q.group_of_input));
  }
  map.tensors.push_back(MakeTensor(name + ".scales", "F16", {q.groups, outputs}, q.scales));
  return map;
}

PackedDirectory::PackedDirectory(const std::string& source, const Int4Packing& packing,
                                 unsigned seed) {
  std::mt19937 random(seed);
  SafetensorsBuilder packed_file, plain_file;
  for (const Tensor& tensor : ReadTensors(source + "/model.safetensors")) {
    if (!IsProjection(tensor)) {
      packed_file.tensors.push_back(tensor);
      plain_file.tensors.push_back(tensor);
      continue;
    }
    const std::string name = tensor.name.substr(0, tensor.name.rfind('.'));
    const PackedLinearMap map =
        PackLinearMap(name, Floats(tensor), static_cast<int>(tensor.shape[0]),
                      static_cast<int>(tensor.shape[1]), packing, random);
    for (const Tensor& part : map.tensors) packed_file.tensors.push_back(part);
    plain_file.tensors.push_back(MakeTensor(tensor.name, "F32", tensor.shape, map.weight));
    ++num_packed;
  }
  // The widest elements first, so that every tensor is aligned to its own.
  for (SafetensorsBuilder* file : {&packed_file, &plain_file}) {
    std::stable_partition(file->tensors.begin(), file->tensors.end(),
                          [](const Tensor& tensor) { return absl::EndsWith(tensor.dtype, "32"); });
  }
  packed.Write("model.safetensors", packed_file.Build());
  plain.Write("model.safetensors", plain_file.Build());
  const auto config = checkpoint::ReadTextFile(source + "/config.json", 1 << 20);
  BATON_CHECK(config.ok(), "cannot read the source's config");
  plain.Write("config.json", *config);
  packed.Write("config.json", absl::StrCat("{\"quantization_config\":", packing.config(), ",",
                                           config->substr(config->find('{') + 1)));
}

}  // namespace baton::testing
