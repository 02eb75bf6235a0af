#include "engine/model/model_plan.h"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::engine {
namespace {

using checkpoint::ModelMetadata;
using checkpoint::RopeMetadata;
using checkpoint::RopeScaling;

// What sets a family apart from Llama; one line registers one.
struct Family {
  std::string_view architecture;
};
constexpr Family kFamilies[] = {
    {"llama"},
};

std::string KnownArchitectures() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.architecture;
  }
  return names;
}

const Family* FindFamily(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

std::string_view ScalingName(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kDynamic:
      return "dynamic";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kYarn:
      return "yarn";
    case RopeScaling::kLongRope:
      return "longrope";
  }
  return "unknown";
}

// Llama 3.1's scaling: long waves are slowed by `factor`, short ones kept, those between blended.
double ScaleLlama3(const RopeMetadata& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = rope.original_max_position;
  if (wavelength < original / rope.high_frequency_factor) return frequency;
  if (wavelength > original / rope.low_frequency_factor) return frequency / rope.factor;
  const double smooth = (original / wavelength - rope.low_frequency_factor) /
                        (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

absl::StatusOr<std::vector<double>> RopeFrequencies(const RopeMetadata& rope) {
  std::vector<double> frequencies(rope.dim / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double frequency =
        std::pow(static_cast<double>(rope.theta), -2.0 * static_cast<double>(i) / rope.dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        frequencies[i] = frequency;
        break;
      case RopeScaling::kLinear:
        frequencies[i] = frequency / rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequencies[i] = ScaleLlama3(rope, frequency);
        break;
      default: {
        const std::string_view name = ScalingName(rope.scaling);
        return absl::FailedPreconditionError(
            absl::StrFormat("rope scaling not supported: %.*s; supported are none, linear, llama3",
                            static_cast<int>(name.size()), name.data()));
      }
    }
    if (!rope.frequency_factors.empty()) frequencies[i] /= rope.frequency_factors[i];
  }
  return frequencies;
}

absl::Status CheckRope(const ModelMetadata& metadata) {
  const RopeMetadata& rope = metadata.rope;
  if (rope.dim <= 0 || rope.dim % 2 != 0 || rope.dim > metadata.head_dim) {
    return absl::FailedPreconditionError(
        absl::StrFormat("rope dimension out of range: %d, must be even and in 2..%d (head_dim)",
                        rope.dim, metadata.head_dim));
  }
  if (rope.scaling != RopeScaling::kNone && !(rope.factor > 0)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("rope scaling factor must be positive: %g", rope.factor));
  }
  if (rope.scaling == RopeScaling::kLlama3 &&
      (rope.original_max_position <= 0 || !(rope.low_frequency_factor > 0) ||
       !(rope.high_frequency_factor > rope.low_frequency_factor))) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "llama3 rope scaling with impossible values: original context %d, frequency factors %g, %g",
        rope.original_max_position, rope.low_frequency_factor, rope.high_frequency_factor));
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeTable> MakeRopeTable(const ModelMetadata& metadata, int max_context) {
  BATON_RETURN_IF_ERROR(CheckRope(metadata));
  BATON_ASSIGN_OR_RETURN(const std::vector<double> frequencies, RopeFrequencies(metadata.rope));
  RopeTable table;
  table.dim = metadata.rope.dim;
  table.interleaved = metadata.rope.interleaved;
  table.cos.reserve(frequencies.size() * max_context);
  table.sin.reserve(frequencies.size() * max_context);
  for (int position = 0; position < max_context; ++position) {
    for (const double frequency : frequencies) {
      table.cos.push_back(static_cast<float>(std::cos(position * frequency)));
      table.sin.push_back(static_cast<float>(std::sin(position * frequency)));
    }
  }
  return table;
}

LayerPlan MakeLayerPlan(const ModelMetadata& metadata) {
  LayerPlan layer;
  layer.num_heads = metadata.num_heads;
  layer.num_kv_heads = metadata.num_kv_heads;
  layer.head_dim = metadata.head_dim;
  layer.intermediate_size = metadata.intermediate_size;
  layer.attention_bias = metadata.attention_bias;
  layer.attention_scale = static_cast<float>(1.0 / std::sqrt(metadata.head_dim));
  layer.norm_eps = metadata.rms_norm_eps;
  layer.rope_table = 0;
  return layer;
}

absl::Status CheckSizes(const ModelMetadata& metadata) {
  if (metadata.hidden_size <= 0 || metadata.num_layers <= 0 || metadata.num_heads <= 0 ||
      metadata.num_kv_heads <= 0 || metadata.head_dim <= 0 || metadata.intermediate_size <= 0 ||
      metadata.vocab_size <= 0 || metadata.max_context <= 0) {
    return absl::InvalidArgumentError("model metadata with a size that is not positive");
  }
  if (metadata.num_heads % metadata.num_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("attention heads cannot share KV heads evenly: %d heads, %d KV heads",
                        metadata.num_heads, metadata.num_kv_heads));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelPlan> MakeModelPlan(const ModelMetadata& metadata, int max_context) {
  if (FindFamily(metadata.architecture) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("model architecture not supported: %s; supported are %s",
                        metadata.architecture, KnownArchitectures()));
  }
  BATON_RETURN_IF_ERROR(CheckSizes(metadata));
  if (max_context < 0 || max_context > metadata.max_context) {
    return absl::InvalidArgumentError(
        absl::StrFormat("context out of range: %d, the model allows 1..%d; lower max_context",
                        max_context, metadata.max_context));
  }
  ModelPlan plan;
  plan.hidden_size = metadata.hidden_size;
  plan.vocab_size = metadata.vocab_size;
  plan.max_context = max_context == 0 ? metadata.max_context : max_context;
  plan.tied_embeddings = metadata.tied_embeddings;
  plan.norm_eps = metadata.rms_norm_eps;
  BATON_ASSIGN_OR_RETURN(RopeTable table, MakeRopeTable(metadata, plan.max_context));
  plan.rope_tables.push_back(std::move(table));
  plan.layers.assign(metadata.num_layers, MakeLayerPlan(metadata));
  return plan;
}

}  // namespace baton::engine
