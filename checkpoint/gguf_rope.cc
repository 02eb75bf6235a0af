#include "checkpoint/gguf_rope.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/hyperparameters.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kFrequencyFactors = "rope_freqs.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";

// Settings of yarn that llama.cpp's converter writes but reads differently from transformers, or
// that are DeepSeek's alone. Refused unless they change nothing.
struct NeutralKey {
  std::string_view key;
  double neutral;
};
constexpr NeutralKey kYarnKeys[] = {
    {"rope.scaling.yarn_ext_factor", 1.0},
    {"rope.scaling.yarn_attn_factor", 1.0},
    {"rope.scaling.yarn_log_multiplier", 0.0},
};

// Takes the factors out of the tensor list: they are metadata in a tensor's clothes. Leaves `out`
// empty when there are none.
absl::Status TakeFactors(StoredTensors& tensors, std::string_view name, int dim,
                         std::vector<float>& out) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) return absl::OkStatus();
  const StoredTensor& tensor = found->second;
  const std::vector<std::int64_t> expected = {dim / 2};
  if (tensor.dtype != DType::kF32 || tensor.shape != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quoted(name), ": wrong shape or type: ", ShapeText(tensor.shape),
                     " ", tensor.type_name, ", expected ", ShapeText(expected), " F32"));
  }
  out.resize(static_cast<std::size_t>(dim / 2));
  DequantizeRow(DType::kF32, tensor.data.data(), dim / 2, out.data());
  for (const float factor : out) {
    if (!(factor > 0 && factor < 1e9f)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor %s: factor out of range: %g, must be positive", Quoted(name), factor));
    }
  }
  tensors.erase(found);
  return absl::OkStatus();
}

absl::Status ReadOriginalContext(const GgufKeys& keys, int missing, RopeMetadata& rope) {
  constexpr std::string_view kKey = "rope.scaling.original_context_length";
  BATON_ASSIGN_OR_RETURN(const auto stated, keys.Integer(kKey));
  const std::int64_t positions = stated.value_or(missing);
  if (positions < 1 || positions > kMostContext) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s out of range: %d, must be 1..%d", Quoted(keys.Full(kKey)), positions, kMostContext));
  }
  rope.original_max_position = static_cast<int>(positions);
  return absl::OkStatus();
}

absl::Status ReadFloat(const GgufKeys& keys, std::string_view key, float& out) {
  BATON_ASSIGN_OR_RETURN(const auto stated, keys.Number(key));
  if (stated.has_value()) out = static_cast<float>(*stated);
  return absl::OkStatus();
}

absl::Status ReadYarn(const GgufKeys& keys, const ModelMetadata& metadata, RopeMetadata& rope) {
  rope.scaling = RopeScaling::kYarn;
  for (const NeutralKey& entry : kYarnKeys) {
    BATON_ASSIGN_OR_RETURN(const auto stated, keys.Number(entry.key));
    if (stated.value_or(entry.neutral) != entry.neutral) {
      return absl::FailedPreconditionError(absl::StrFormat("unsupported: %s is %g, must be %g",
                                                           Quoted(keys.Full(entry.key)), *stated,
                                                           entry.neutral));
    }
  }
  BATON_RETURN_IF_ERROR(ReadOriginalContext(keys, metadata.max_context, rope));
  BATON_RETURN_IF_ERROR(ReadFloat(keys, "rope.scaling.yarn_beta_fast", rope.beta_fast));
  BATON_RETURN_IF_ERROR(ReadFloat(keys, "rope.scaling.yarn_beta_slow", rope.beta_slow));
  // Of yarn the stated factor multiplies what the formula gives.
  if (rope.attention_factor > 0 && rope.factor > 1) {
    rope.attention_factor *= static_cast<float>(0.1 * std::log(rope.factor) + 1.0);
  }
  return absl::OkStatus();
}

absl::Status ReadLongRope(const GgufKeys& keys, const Family& family, const ModelMetadata& metadata,
                          RopeMetadata& rope) {
  rope.scaling = RopeScaling::kLongRope;
  const int family_context = family.arithmetic.original_context;
  BATON_RETURN_IF_ERROR(
      ReadOriginalContext(keys, family_context == 0 ? metadata.max_context : family_context, rope));
  rope.factor =
      static_cast<float>(metadata.max_context) / static_cast<float>(rope.original_max_position);
  if (rope.attention_factor == 0) rope.attention_factor = 1.0f;  // the file holds the formula's
  if (!rope.short_factors.empty() && !rope.long_factors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("missing tensor: longrope scaling needs ",
                                                 Quoted(kShortFactors), " and ",
                                                 Quoted(kLongFactors)));
}

absl::Status ReadScaling(const GgufKeys& keys, const Family& family, const ModelMetadata& metadata,
                         RopeMetadata& rope) {
  BATON_ASSIGN_OR_RETURN(const auto type, keys.String("rope.scaling.type"));
  BATON_ASSIGN_OR_RETURN(const auto old_factor, keys.Number("rope.scale_linear"));
  BATON_ASSIGN_OR_RETURN(const auto factor, keys.Number("rope.scaling.factor"));
  BATON_RETURN_IF_ERROR(ReadFloat(keys, "rope.scaling.attn_factor", rope.attention_factor));
  const bool tables = !rope.short_factors.empty() || !rope.long_factors.empty();
  std::string_view name = old_factor.has_value() ? "linear" : "none";
  if (type.has_value()) name = *type;
  // Converters of Phi-3 leave the type out, and early ones call it yarn.
  if (name == "longrope" || tables) return ReadLongRope(keys, family, metadata, rope);
  if (name == "none") return absl::OkStatus();
  rope.factor = static_cast<float>(factor.value_or(old_factor.value_or(1.0)));
  if (name == "yarn") return ReadYarn(keys, metadata, rope);
  if (name != "linear") {
    return absl::FailedPreconditionError(absl::StrCat("unsupported rope scaling: ", Quoted(name),
                                                      "; supported: none, linear, yarn, longrope"));
  }
  if (rope.factor != 1.0f) rope.scaling = RopeScaling::kLinear;
  return absl::OkStatus();
}

absl::Status ReadLocalRope(const GgufKeys& keys, const Family& family, ModelMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(const auto stated, keys.Number("rope.freq_base_swa"));
  const double local = family.arithmetic.local_rope_theta;
  if (!stated.has_value() && local == 0) return absl::OkStatus();
  RopeMetadata rope = metadata.rope;
  if (local > 0) {
    rope = RopeMetadata();
    rope.dim = metadata.rope.dim;
    rope.interleaved = metadata.rope.interleaved;
  }
  rope.theta = static_cast<float>(stated.value_or(local));
  metadata.local_rope = std::move(rope);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGgufRope(const GgufKeys& keys, const Family& family, StoredTensors& tensors,
                          ModelMetadata& metadata) {
  RopeMetadata& rope = metadata.rope;
  BATON_ASSIGN_OR_RETURN(const auto theta, keys.Number("rope.freq_base"));
  BATON_ASSIGN_OR_RETURN(const auto dim, keys.Integer("rope.dimension_count"));
  rope.theta = static_cast<float>(theta.value_or(10000.0));
  if (dim.has_value() && (*dim < 1 || *dim > 1 << 16)) {
    return absl::InvalidArgumentError(absl::StrFormat("rotated dimensions out of range: %d", *dim));
  }
  rope.dim = static_cast<int>(dim.value_or(metadata.head_dim));
  rope.interleaved = family.gguf_interleaved_rope;
  BATON_RETURN_IF_ERROR(TakeFactors(tensors, kFrequencyFactors, rope.dim, rope.frequency_factors));
  BATON_RETURN_IF_ERROR(TakeFactors(tensors, kShortFactors, rope.dim, rope.short_factors));
  BATON_RETURN_IF_ERROR(TakeFactors(tensors, kLongFactors, rope.dim, rope.long_factors));
  BATON_RETURN_IF_ERROR(ReadScaling(keys, family, metadata, rope));
  BATON_RETURN_IF_ERROR(ReadLocalRope(keys, family, metadata));
  BATON_RETURN_IF_ERROR(CheckRope(metadata));
  return ScaleContext(family.arithmetic.context_scaled, metadata);
}

}  // namespace baton::checkpoint
