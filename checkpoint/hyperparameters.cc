#include "checkpoint/hyperparameters.h"

#include <cmath>
#include <string>

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
    {&ModelMetadata::max_context, "context length", 1 << 28},
};

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

absl::Status CheckRope(const ModelMetadata& metadata) {
  const RopeMetadata& rope = metadata.rope;
  if (!std::isfinite(rope.theta) || rope.theta <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rope base out of range: %g, must be positive", rope.theta));
  }
  if (rope.dim < 2 || rope.dim % 2 != 0 || rope.dim > metadata.head_dim) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rotated dimensions out of range: %d, must be even and at most the head "
                        "size %d",
                        rope.dim, metadata.head_dim));
  }
  if (rope.scaling == RopeScaling::kNone) return absl::OkStatus();
  if (!std::isfinite(rope.factor) || rope.factor <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rope scaling factor out of range: %g, must be positive", rope.factor));
  }
  if (rope.scaling != RopeScaling::kLlama3) return absl::OkStatus();
  const float low = rope.low_frequency_factor;
  const float high = rope.high_frequency_factor;
  if (!std::isfinite(low) || !std::isfinite(high) || low <= 0 || high <= low) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "llama3 rope scaling factors out of range: low %g, high %g, must be 0 < low < high", low,
        high));
  }
  if (rope.original_max_position < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("llama3 rope scaling needs original_max_position_embeddings, got %d",
                        rope.original_max_position));
  }
  return absl::OkStatus();
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
    } else if (key.required) {
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

absl::Status CompleteAndCheckRope(ModelMetadata& metadata) {
  if (metadata.rope.dim == 0) metadata.rope.dim = metadata.head_dim;
  if (!std::isfinite(metadata.rms_norm_eps) || metadata.rms_norm_eps <= 0 ||
      metadata.rms_norm_eps >= 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "RMS norm epsilon out of range: %g, must be above 0 and below 1", metadata.rms_norm_eps));
  }
  return CheckRope(metadata);
}

}  // namespace baton::checkpoint
