#include "tests/support/metadata_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton::testing {
namespace {

using checkpoint::Activation;
using checkpoint::ModelMetadata;
using checkpoint::RopeMetadata;
using checkpoint::RopeScaling;

const char* ActivationText(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluTanh:
      return "gelu-tanh";
    case Activation::kGelu:
      return "gelu";
  }
  return "?";
}

// First, last and number.
std::string FactorsText(const std::vector<float>& factors) {
  if (factors.empty()) return "none";
  return absl::StrFormat("%g..%g of %d", factors.front(), factors.back(), factors.size());
}

std::string ScalingText(const RopeMetadata& rope) {
  const std::string original =
      absl::StrFormat("%g from %d", rope.factor, rope.original_max_position);
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return "";
    case RopeScaling::kLinear:
      return absl::StrFormat(" linear %g", rope.factor);
    case RopeScaling::kDynamic:
      return absl::StrCat(" dynamic ", original);
    case RopeScaling::kLlama3:
      return absl::StrFormat(" llama3 %s low %g high %g", original, rope.low_frequency_factor,
                             rope.high_frequency_factor);
    case RopeScaling::kYarn:
      return absl::StrFormat(
          " yarn %s beta %g..%g%s%s", original, rope.beta_slow, rope.beta_fast,
          rope.truncate ? "" : " exact",
          rope.mscale == 0 && rope.mscale_all_dim == 0
              ? ""
              : absl::StrFormat(" mscale %g/%g", rope.mscale, rope.mscale_all_dim));
    case RopeScaling::kLongRope:
      return absl::StrFormat(" longrope %s short %s long %s", original,
                             FactorsText(rope.short_factors), FactorsText(rope.long_factors));
  }
  return "?";
}

std::string RopeText(const RopeMetadata& rope) {
  std::string text = absl::StrFormat("%g of %d%s%s", rope.theta, rope.dim,
                                     rope.interleaved ? " interleaved" : "", ScalingText(rope));
  if (rope.attention_factor != 0) absl::StrAppendFormat(&text, " times %g", rope.attention_factor);
  if (!rope.frequency_factors.empty()) {
    absl::StrAppend(&text, " factors ", FactorsText(rope.frequency_factors));
  }
  return text;
}

std::string Flags(const std::vector<bool>& flags) {
  std::string text;
  for (const bool flag : flags) text += flag ? '1' : '0';
  return text;
}

std::string FeaturesText(const ModelMetadata& metadata) {
  std::string text;
  if (metadata.norm_offset != 0)
    absl::StrAppendFormat(&text, ", norm offset %g", metadata.norm_offset);
  if (metadata.attention_bias) text += ", qkv bias";
  if (metadata.output_bias) text += ", o bias";
  if (metadata.mlp_bias) text += ", mlp bias";
  if (metadata.qk_norm) text += ", qk norm";
  if (metadata.post_norms) text += ", post norms";
  if (metadata.embedding_scale != 1) {
    absl::StrAppendFormat(&text, ", embedding scale %g", metadata.embedding_scale);
  }
  if (metadata.attention_scale != 0) {
    absl::StrAppendFormat(&text, ", attention scale %g", metadata.attention_scale);
  }
  if (metadata.attention_softcap != 0 || metadata.logit_softcap != 0) {
    absl::StrAppendFormat(&text, ", caps %g %g", metadata.attention_softcap,
                          metadata.logit_softcap);
  }
  return text;
}

}  // namespace

std::string MetadataText(const ModelMetadata& metadata) {
  std::string text = absl::StrFormat(
      "%s: %d layers of %d, %d/%d heads of %d, mlp %d %s, vocabulary %d%s, context %d\n",
      metadata.architecture, metadata.num_layers, metadata.hidden_size, metadata.num_heads,
      metadata.num_kv_heads, metadata.head_dim, metadata.intermediate_size,
      ActivationText(metadata.activation), metadata.vocab_size,
      metadata.tied_embeddings ? " tied" : "", metadata.max_context);
  absl::StrAppendFormat(&text, "eps %g%s, rope %s", metadata.rms_norm_eps, FeaturesText(metadata),
                        RopeText(metadata.rope));
  if (metadata.sliding_window != 0) {
    absl::StrAppendFormat(&text, "\nwindow %d in %s", metadata.sliding_window,
                          Flags(metadata.windowed_layers));
  }
  if (metadata.local_rope.has_value()) {
    absl::StrAppend(&text, ", rope there ", RopeText(*metadata.local_rope));
  }
  if (!metadata.no_rope_layers.empty()) {
    absl::StrAppend(&text, "\nno rope in ", Flags(metadata.no_rope_layers));
  }
  if (metadata.num_experts != 0) {
    absl::StrAppendFormat(&text, "\n%d of %d experts of %d%s", metadata.experts_per_token,
                          metadata.num_experts, metadata.expert_intermediate_size,
                          metadata.normalize_expert_weights ? "" : ", not normalized");
  }
  return text;
}

}  // namespace baton::testing
