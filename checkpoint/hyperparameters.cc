#include "checkpoint/hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

// Far above any model known, far below what overflows when multiplied.
struct Limit {
  int ModelMetadata::*field;
  const char* name;
  int most;
};

constexpr Limit kLimits[] = {
    {&ModelMetadata::hidden_size, "hidden size", 1 << 18},
    {&ModelMetadata::num_layers, "number of layers", 1 << 10},
    {&ModelMetadata::num_heads, "number of attention heads", 1 << 12},
    {&ModelMetadata::num_kv_heads, "number of KV heads", 1 << 12},
    {&ModelMetadata::head_dim, "head size", 1 << 12},
    {&ModelMetadata::intermediate_size, "intermediate size", 1 << 20},
    {&ModelMetadata::vocab_size, "vocabulary size", 1 << 22},
    {&ModelMetadata::max_context, "context length", kMostContext},
};
// Names of tensors are made for every expert of every layer, so their number is bounded too. The
// largest model known has 61 * 384.
constexpr int kMostExperts = 1 << 12;
constexpr int kMostExpertsOfAllLayers = 1 << 16;

const Limit& LimitOf(int ModelMetadata::*field) {
  for (const Limit& limit : kLimits) {
    if (limit.field == field) return limit;
  }
  return kLimits[0];  // every field of a SizeKey is listed
}

absl::Status CheckLimit(const Limit& limit, std::int64_t value) {
  if (value >= 1 && value <= limit.most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s out of range: %d, must be 1..%d", limit.name, value, limit.most));
}

bool IsPositive(float number) { return std::isfinite(number) && number > 0; }

absl::Status CheckPositive(const char* what, float number) {
  if (IsPositive(number)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s out of range: %g, must be positive", what, number));
}

// Zero stands for none.
absl::Status CheckNotNegative(const char* what, float number) {
  return number == 0 ? absl::OkStatus() : CheckPositive(what, number);
}

absl::Status CheckFactorList(const char* what, const std::vector<float>& factors, int dim) {
  if (static_cast<int>(factors.size()) != dim / 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d of them, must be %d, half of the rotated dimensions", what,
                        factors.size(), dim / 2));
  }
  for (const float factor : factors) BATON_RETURN_IF_ERROR(CheckPositive(what, factor));
  return absl::OkStatus();
}

absl::Status CheckLlama3(const RopeMetadata& rope) {
  const float low = rope.low_frequency_factor;
  const float high = rope.high_frequency_factor;
  if (IsPositive(low) && IsPositive(high) && low < high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "llama3 rope scaling factors out of range: low %g, high %g, must be 0 < low < high", low,
      high));
}

absl::Status CheckYarn(const RopeMetadata& rope) {
  BATON_RETURN_IF_ERROR(CheckPositive("yarn's beta_fast", rope.beta_fast));
  BATON_RETURN_IF_ERROR(CheckPositive("yarn's beta_slow", rope.beta_slow));
  BATON_RETURN_IF_ERROR(CheckNotNegative("yarn's mscale", rope.mscale));
  BATON_RETURN_IF_ERROR(CheckNotNegative("yarn's mscale_all_dim", rope.mscale_all_dim));
  if (rope.theta > 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("rope base out of range: %g, yarn needs one above 1", rope.theta));
}

absl::Status CheckScaling(const RopeMetadata& rope) {
  BATON_RETURN_IF_ERROR(CheckPositive("rope scaling factor", rope.factor));
  BATON_RETURN_IF_ERROR(CheckNotNegative("rope attention factor", rope.attention_factor));
  if (rope.scaling == RopeScaling::kLinear) return absl::OkStatus();
  if (rope.original_max_position < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "rope scaling needs the context before scaling, got %d", rope.original_max_position));
  }
  switch (rope.scaling) {
    case RopeScaling::kLlama3:
      return CheckLlama3(rope);
    case RopeScaling::kYarn:
      return CheckYarn(rope);
    case RopeScaling::kDynamic:
      if (rope.dim > 2 && rope.factor >= 1) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrFormat("dynamic rope scaling out of range: factor %g, %d rotated dimensions; "
                          "must be at least 1, and more than 2",
                          rope.factor, rope.dim));
    case RopeScaling::kLongRope:
      BATON_RETURN_IF_ERROR(CheckFactorList("short rope factors", rope.short_factors, rope.dim));
      return CheckFactorList("long rope factors", rope.long_factors, rope.dim);
    default:
      return absl::OkStatus();
  }
}

absl::Status CheckOneRope(const RopeMetadata& rope, int head_dim) {
  BATON_RETURN_IF_ERROR(CheckPositive("rope base", rope.theta));
  if (rope.dim < 2 || rope.dim % 2 != 0 || rope.dim > head_dim) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rotated dimensions out of range: %d, must be even and at most the head "
                        "size %d",
                        rope.dim, head_dim));
  }
  return rope.scaling == RopeScaling::kNone ? absl::OkStatus() : CheckScaling(rope);
}

}  // namespace

absl::Status ReadSizes(const Family& family, FileFormat format, const IntegerLookup& lookup,
                       ModelMetadata& metadata) {
  for (const SizeKey& key : family.sizes) {
    const std::string_view name = format == FileFormat::kGguf ? key.gguf : key.huggingface;
    if (name.empty()) continue;
    BATON_ASSIGN_OR_RETURN(const std::optional<std::int64_t> value, lookup(name));
    if (value.has_value()) {
      const absl::Status status = CheckLimit(LimitOf(key.field), *value);
      if (!status.ok()) return Annotate(status, Quoted(name));
      metadata.*key.field = static_cast<int>(*value);
    } else if (key.required && metadata.*key.field == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("missing key: ", Quoted(name), ", the ", LimitOf(key.field).name));
    }
  }
  return absl::OkStatus();
}

absl::Status CompleteSizes(ModelMetadata& metadata) {
  if (metadata.num_kv_heads == 0) metadata.num_kv_heads = metadata.num_heads;
  if (metadata.head_dim == 0) {
    if (metadata.hidden_size % metadata.num_heads != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("heads do not divide the hidden size: %d heads, hidden size %d; a head "
                          "size must be stated",
                          metadata.num_heads, metadata.hidden_size));
    }
    metadata.head_dim = metadata.hidden_size / metadata.num_heads;
  }
  for (const Limit& limit : kLimits) {
    BATON_RETURN_IF_ERROR(CheckLimit(limit, metadata.*limit.field));
  }
  if (metadata.num_heads % metadata.num_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("KV heads do not divide the heads: %d heads, %d KV heads",
                        metadata.num_heads, metadata.num_kv_heads));
  }
  return absl::OkStatus();
}

absl::Status CheckRope(const ModelMetadata& metadata) {
  BATON_RETURN_IF_ERROR(CheckOneRope(metadata.rope, metadata.head_dim));
  if (!metadata.local_rope.has_value()) return absl::OkStatus();
  return Annotate(CheckOneRope(*metadata.local_rope, metadata.head_dim), "windowed layers");
}

absl::Status CheckNumbers(const ModelMetadata& metadata) {
  if (!IsPositive(metadata.rms_norm_eps) || metadata.rms_norm_eps >= 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "RMS norm epsilon out of range: %g, must be above 0 and below 1", metadata.rms_norm_eps));
  }
  BATON_RETURN_IF_ERROR(CheckPositive("embedding scale", metadata.embedding_scale));
  BATON_RETURN_IF_ERROR(CheckNotNegative("attention scale", metadata.attention_scale));
  BATON_RETURN_IF_ERROR(CheckNotNegative("attention soft cap", metadata.attention_softcap));
  return CheckNotNegative("logit soft cap", metadata.logit_softcap);
}

absl::Status CheckExperts(const ModelMetadata& metadata) {
  const int experts = metadata.num_experts;
  if (experts < 1 || experts > kMostExperts ||
      experts * metadata.num_layers > kMostExpertsOfAllLayers) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "number of experts out of range: %d in each of %d layers, must be 1..%d, and at most %d in "
        "all",
        experts, metadata.num_layers, kMostExperts, kMostExpertsOfAllLayers));
  }
  if (metadata.experts_per_token < 1 || metadata.experts_per_token > experts) {
    return absl::InvalidArgumentError(
        absl::StrFormat("experts per token out of range: %d, must be 1..%d, the number of experts",
                        metadata.experts_per_token, experts));
  }
  const int most = LimitOf(&ModelMetadata::intermediate_size).most;
  if (metadata.expert_intermediate_size >= 1 && metadata.expert_intermediate_size <= most) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("intermediate size of an expert out of range: %d, must be 1..%d",
                      metadata.expert_intermediate_size, most));
}

absl::Status ScaleContext(bool context_scaled, ModelMetadata& metadata) {
  const RopeMetadata& rope = metadata.rope;
  double context = metadata.max_context;
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kDynamic) {
    context *= rope.factor;
  } else if (rope.scaling == RopeScaling::kYarn) {
    context = static_cast<double>(rope.original_max_position) * rope.factor;
  }
  if (!context_scaled) return absl::OkStatus();
  if (context < 1 || context > kMostContext) {
    return absl::InvalidArgumentError(
        absl::StrFormat("context length out of range: %g after rope scaling by %g, must be 1..%d",
                        context, rope.factor, kMostContext));
  }
  metadata.max_context = static_cast<int>(context);
  return absl::OkStatus();
}

void SetWindow(int window, std::vector<bool> windowed, ModelMetadata& metadata) {
  const bool any = std::find(windowed.begin(), windowed.end(), true) != windowed.end();
  // Windowed layers with a rope of their own stay what they are.
  const bool hides = window < metadata.max_context || metadata.local_rope.has_value();
  if (!any || !hides) return;
  metadata.sliding_window = window;
  metadata.windowed_layers = std::move(windowed);
}

}  // namespace baton::checkpoint
