#include "checkpoint/gguf_hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/gguf_rope.h"
#include "checkpoint/hyperparameters.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

// Keys that stand for arithmetic that no family has: refused unless they hold the value that means
// none of it.
struct NeutralKey {
  std::string_view key;
  double neutral;
};
constexpr NeutralKey kNeutralKeys[] = {
    {"attention.max_alibi_bias", 0},
    {"attention.clamp_kqv", 0},
    {"attention.temperature_scale", 0},
    {"attention.temperature_length", 0},
    {"attention.shared_kv_layers", 0},
    {"expert_shared_count", 0},
    {"expert_group_count", 0},
    {"leading_dense_block_count", 0},
    {"nextn_predict_layers", 0},
    {"embedding_scale", 1},
    {"residual_scale", 1},
    {"logit_scale", 1},
    {"expert_weights_scale", 1},
    {"expert_gating_func", 1},  // softmax
};
constexpr std::string_view kCaps[] = {"attn_logit_softcapping", "final_logit_softcapping"};

absl::Status CheckNeutral(const GgufKeys& keys, std::string_view key, double neutral) {
  BATON_ASSIGN_OR_RETURN(const auto value, keys.Number(key));
  // Zero stands for "not stated" in all of them.
  if (!value.has_value() || *value == 0 || *value == neutral) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat("unsupported: %s is %g, must be %g",
                                                       Quoted(keys.Full(key)), *value, neutral));
}

absl::Status CheckArithmeticKeys(const GgufKeys& keys, const Family& family) {
  for (const NeutralKey& entry : kNeutralKeys) {
    BATON_RETURN_IF_ERROR(CheckNeutral(keys, entry.key, entry.neutral));
  }
  if (!family.arithmetic.softcaps) {
    for (const std::string_view cap : kCaps) BATON_RETURN_IF_ERROR(CheckNeutral(keys, cap, 0));
  }
  if (family.experts.count_key.empty()) {
    BATON_RETURN_IF_ERROR(CheckNeutral(keys, "expert_count", 0));
  }
  if (keys.IsArray("rope.dimension_sections")) {
    return absl::FailedPreconditionError(absl::StrCat(
        "unsupported: ", Quoted(keys.Full("rope.dimension_sections")), ", rope of several axes"));
  }
  BATON_ASSIGN_OR_RETURN(const auto causal, keys.Bool("attention.causal"));
  if (causal.value_or(true)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("unsupported: ", Quoted(keys.Full("attention.causal")), " is false"));
}

absl::Status ReadVocabularySize(const GgufKeys& keys, const TextAssets& assets,
                                ModelMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(const auto stated, keys.Integer("vocab_size"));
  if (!assets.gguf.has_value() && !stated.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("missing key: ", Quoted(keys.Full("vocab_size")), " or a vocabulary"));
  }
  const std::int64_t size =
      assets.gguf.has_value() ? static_cast<std::int64_t>(assets.gguf->tokens.size()) : *stated;
  if (stated.value_or(size) != size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("vocabulary size disagrees: %s says %d, there are %d tokens",
                        Quoted(keys.Full("vocab_size")), *stated, size));
  }
  metadata.vocab_size = static_cast<int>(std::min<std::int64_t>(size, 1 << 30));
  return absl::OkStatus();
}

absl::Status ReadSizesOfAll(const GgufKeys& keys, const Family& family, const TextAssets& assets,
                            ModelMetadata& metadata) {
  BATON_RETURN_IF_ERROR(ReadSizes(
      family, FileFormat::kGguf, [&](std::string_view key) { return keys.Integer(key); },
      metadata));
  BATON_RETURN_IF_ERROR(ReadVocabularySize(keys, assets, metadata));
  BATON_RETURN_IF_ERROR(CompleteSizes(metadata));
  BATON_ASSIGN_OR_RETURN(const auto value_size, keys.Integer("attention.value_length"));
  if (value_size.value_or(metadata.head_dim) == metadata.head_dim) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "unsupported: key and value head sizes differ: %d and %d", metadata.head_dim, *value_size));
}

absl::Status ReadCap(const GgufKeys& keys, std::string_view key, float missing, float& cap) {
  BATON_ASSIGN_OR_RETURN(const auto stated, keys.Number(key));
  cap = static_cast<float>(stated.value_or(missing));
  return absl::OkStatus();
}

absl::Status ReadAttentionScale(const GgufKeys& keys, const Arithmetic& arithmetic,
                                ModelMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(const auto stated, keys.Number("attention.scale"));
  if (stated.value_or(0) != 0) {
    metadata.attention_scale = static_cast<float>(*stated);
  } else if (arithmetic.query_scale && metadata.num_layers == arithmetic.gguf_query_scale_layers) {
    const int scalar = std::max(metadata.hidden_size / metadata.num_heads, 1);
    metadata.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  }
  return absl::OkStatus();
}

absl::Status ReadArithmetic(const GgufKeys& keys, const Arithmetic& arithmetic,
                            ModelMetadata& metadata) {
  constexpr std::string_view kEpsilon = "attention.layer_norm_rms_epsilon";
  BATON_ASSIGN_OR_RETURN(const auto eps, keys.Number(kEpsilon));
  if (!eps.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("missing key: ", Quoted(keys.Full(kEpsilon))));
  }
  metadata.rms_norm_eps = static_cast<float>(*eps);
  metadata.activation = arithmetic.activation;
  metadata.qk_norm = arithmetic.qk_norm;
  metadata.post_norms = arithmetic.post_norms;
  if (arithmetic.scaled_embeddings) {
    metadata.embedding_scale = std::sqrt(static_cast<float>(metadata.hidden_size));
  }
  BATON_RETURN_IF_ERROR(ReadAttentionScale(keys, arithmetic, metadata));
  if (arithmetic.softcaps) {
    BATON_RETURN_IF_ERROR(
        ReadCap(keys, kCaps[0], arithmetic.attention_softcap, metadata.attention_softcap));
    BATON_RETURN_IF_ERROR(
        ReadCap(keys, kCaps[1], arithmetic.logit_softcap, metadata.logit_softcap));
  }
  return CheckNumbers(metadata);
}

// A whole number that fits an int, or -1; `missing` where the key is not there.
absl::StatusOr<int> Count(const GgufKeys& keys, std::string_view key, int missing) {
  BATON_ASSIGN_OR_RETURN(const auto stated, keys.Integer(key));
  if (!stated.has_value()) return missing;
  return *stated >= 0 && *stated <= 1 << 30 ? static_cast<int>(*stated) : -1;
}

absl::Status ReadExperts(const GgufKeys& keys, const Family& family, ModelMetadata& metadata) {
  if (family.experts.count_key.empty()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(metadata.num_experts, Count(keys, "expert_count", 0));
  BATON_ASSIGN_OR_RETURN(metadata.experts_per_token, Count(keys, "expert_used_count", 0));
  BATON_ASSIGN_OR_RETURN(metadata.expert_intermediate_size,
                         Count(keys, "expert_feed_forward_length", metadata.intermediate_size));
  BATON_ASSIGN_OR_RETURN(const auto normalize, keys.Bool("expert_weights_norm"));
  metadata.normalize_expert_weights = normalize.value_or(true);  // llama.cpp's, of all we know
  return CheckExperts(metadata);
}

absl::Status CannotTell(const GgufKeys& keys, std::int64_t window) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "unsupported: %s is %d, but the file does not say which layers have the window",
      Quoted(keys.Full("attention.sliding_window")), window));
}

// Which layers have a window, by the file's pattern (an entry per layer, or a period of which the
// last is full; 0: none is full) or else the family's.
absl::StatusOr<std::vector<bool>> Windowed(const GgufKeys& keys, const WindowRule& rule,
                                           std::int64_t window, int num_layers) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (keys.IsArray(kPattern)) {
    BATON_ASSIGN_OR_RETURN(const auto flags, keys.Flags(kPattern));
    if (static_cast<int>(flags->size()) == num_layers) return *flags;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %d entries for %d layers", Quoted(keys.Full(kPattern)), flags->size(), num_layers));
  }
  const bool known = rule.layers == WindowedLayers::kPattern;
  BATON_ASSIGN_OR_RETURN(const int period, Count(keys, kPattern, known ? rule.period : 0));
  if (period < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(keys.Full(kPattern)), " out of range: must not be negative"));
  }
  const bool all = rule.layers == WindowedLayers::kNone || rule.layers == WindowedLayers::kAll;
  if (period == 0 && !known && !all) return CannotTell(keys, window);
  std::vector<bool> windowed(static_cast<std::size_t>(num_layers));
  for (int layer = 0; layer < num_layers; ++layer) {
    windowed[layer] = period == 0 || (layer + 1) % period != 0;
  }
  return windowed;
}

absl::Status ReadLayers(const GgufKeys& keys, const Family& family, ModelMetadata& metadata) {
  const int no_rope_period = family.arithmetic.no_rope_period;
  for (int layer = 0; no_rope_period > 0 && layer < metadata.num_layers; ++layer) {
    metadata.no_rope_layers.push_back((layer + 1) % no_rope_period == 0);
  }
  constexpr std::string_view kKey = "attention.sliding_window";
  BATON_ASSIGN_OR_RETURN(const auto stated, keys.Integer(kKey));
  const std::int64_t window = stated.value_or(family.windows.gguf_window);
  if (window < 0 || window > kMostContext) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s out of range: %d, must be 0..%d", Quoted(keys.Full(kKey)), window, kMostContext));
  }
  if (window > 0) {
    BATON_ASSIGN_OR_RETURN(std::vector<bool> windowed,
                           Windowed(keys, family.windows, window, metadata.num_layers));
    SetWindow(static_cast<int>(window), std::move(windowed), metadata);
  }
  if (metadata.windowed_layers.empty()) metadata.local_rope.reset();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelMetadata> ReadGgufHyperparameters(const GgufKeys& keys, const Family& family,
                                                      const TextAssets& assets,
                                                      StoredTensors& tensors) {
  ModelMetadata metadata;
  metadata.architecture = std::string(family.name);
  metadata.format = "gguf";
  BATON_RETURN_IF_ERROR(ReadSizesOfAll(keys, family, assets, metadata));
  BATON_RETURN_IF_ERROR(CheckArithmeticKeys(keys, family));
  BATON_RETURN_IF_ERROR(ReadArithmetic(keys, family.arithmetic, metadata));
  BATON_RETURN_IF_ERROR(ReadExperts(keys, family, metadata));
  BATON_RETURN_IF_ERROR(ReadGgufRope(keys, family, tensors, metadata));
  BATON_RETURN_IF_ERROR(ReadLayers(keys, family, metadata));
  metadata.tied_embeddings = !tensors.contains("output.weight");
  metadata.attention_bias = tensors.contains("blk.0.attn_q.bias");
  metadata.output_bias = tensors.contains("blk.0.attn_output.bias");
  metadata.mlp_bias = tensors.contains("blk.0.ffn_up.bias");
  return metadata;
}

}  // namespace baton::checkpoint
