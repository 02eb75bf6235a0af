#include "checkpoint/huggingface_rope.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/hyperparameters.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kOriginal = "original_max_position_embeddings";

// One set of settings and the two places it may stand in.
struct Settings {
  const JsonObject& config;
  const std::optional<JsonObject>& scaling;  // an object of its own, if any

  absl::StatusOr<std::optional<double>> Number(std::string_view key) const {
    if (scaling.has_value()) {
      BATON_ASSIGN_OR_RETURN(const auto inner, scaling->Number(key));
      if (inner.has_value()) return inner;
    }
    return config.Number(key);
  }
};

absl::Status ReadFloat(const JsonObject& object, std::string_view key, float& out) {
  BATON_ASSIGN_OR_RETURN(const auto number, object.Number(key));
  if (number.has_value()) out = static_cast<float>(*number);
  return absl::OkStatus();
}

// As ReadFloat, but zero counts as missing, as in transformers.
absl::Status ReadBeta(const JsonObject& object, std::string_view key, float& out) {
  BATON_ASSIGN_OR_RETURN(const auto number, object.Number(key));
  if (number.value_or(0.0) != 0.0) out = static_cast<float>(*number);
  return absl::OkStatus();
}

absl::Status ReadFactorList(const JsonObject& scaling, std::string_view key,
                            std::vector<float>& out) {
  BATON_ASSIGN_OR_RETURN(const auto numbers, scaling.Numbers(key));
  if (!numbers.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("missing key: ", Quoted(key), ", which longrope scaling needs"));
  }
  out.assign(numbers->begin(), numbers->end());
  return absl::OkStatus();
}

// The context before scaling. transformers prefers the one beside max_position_embeddings.
absl::StatusOr<int> OriginalContext(const JsonObject& config, const JsonObject& scaling,
                                    int missing) {
  BATON_ASSIGN_OR_RETURN(auto stated, config.Integer(kOriginal));
  if (!stated.has_value()) {
    BATON_ASSIGN_OR_RETURN(stated, scaling.Integer(kOriginal));
  }
  const std::int64_t positions = stated.value_or(missing);
  if (positions < 1 || positions > kMostContext) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", Quoted(kOriginal), ": missing or out of range: ", positions));
  }
  return static_cast<int>(positions);
}

absl::Status ReadLlama3(const JsonObject& config, const JsonObject& scaling, RopeMetadata& rope) {
  rope.scaling = RopeScaling::kLlama3;
  BATON_RETURN_IF_ERROR(ReadFloat(scaling, "low_freq_factor", rope.low_frequency_factor));
  BATON_RETURN_IF_ERROR(ReadFloat(scaling, "high_freq_factor", rope.high_frequency_factor));
  BATON_ASSIGN_OR_RETURN(rope.original_max_position, OriginalContext(config, scaling, 0));
  return absl::OkStatus();
}

// An attention factor that is stated must be positive: 0 stands for the formula.
absl::Status ReadAttentionFactor(const JsonObject& scaling, RopeMetadata& rope) {
  BATON_ASSIGN_OR_RETURN(const auto factor, scaling.Number("attention_factor"));
  if (!factor.has_value()) return absl::OkStatus();
  if (!(*factor > 0.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("key 'attention_factor' out of range: ", *factor, ", must be positive"));
  }
  rope.attention_factor = static_cast<float>(*factor);
  return absl::OkStatus();
}

// The ratio of the two contexts, where the factor itself is not stated.
void CompleteFactor(const JsonObject& scaling, int max_context, RopeMetadata& rope) {
  if (scaling.Text("factor") != "null") return;
  rope.factor = static_cast<float>(max_context) / static_cast<float>(rope.original_max_position);
}

absl::Status ReadYarn(const JsonObject& config, const JsonObject& scaling, int max_context,
                      RopeMetadata& rope) {
  rope.scaling = RopeScaling::kYarn;
  BATON_ASSIGN_OR_RETURN(rope.original_max_position, OriginalContext(config, scaling, max_context));
  CompleteFactor(scaling, max_context, rope);
  BATON_RETURN_IF_ERROR(ReadAttentionFactor(scaling, rope));
  BATON_RETURN_IF_ERROR(ReadBeta(scaling, "beta_fast", rope.beta_fast));
  BATON_RETURN_IF_ERROR(ReadBeta(scaling, "beta_slow", rope.beta_slow));
  BATON_RETURN_IF_ERROR(ReadFloat(scaling, "mscale", rope.mscale));
  BATON_RETURN_IF_ERROR(ReadFloat(scaling, "mscale_all_dim", rope.mscale_all_dim));
  BATON_ASSIGN_OR_RETURN(const auto truncate, scaling.Bool("truncate"));
  rope.truncate = truncate.value_or(true);
  return absl::OkStatus();
}

absl::Status ReadLongRope(const JsonObject& config, const JsonObject& scaling, const Family& family,
                          int max_context, RopeMetadata& rope) {
  rope.scaling = RopeScaling::kLongRope;
  const int family_context = family.arithmetic.original_context;
  BATON_ASSIGN_OR_RETURN(
      rope.original_max_position,
      OriginalContext(config, scaling, family_context == 0 ? max_context : family_context));
  CompleteFactor(scaling, max_context, rope);
  BATON_RETURN_IF_ERROR(ReadAttentionFactor(scaling, rope));
  BATON_RETURN_IF_ERROR(ReadFactorList(scaling, "short_factor", rope.short_factors));
  return ReadFactorList(scaling, "long_factor", rope.long_factors);
}

// Arithmetic of models that are not supported: Phi-3.5-MoE, Qwen-VL, Ministral 3.
absl::Status CheckRefusedKeys(const JsonObject& scaling) {
  for (const std::string_view key :
       {"short_mscale", "long_mscale", "mrope_section", "llama_4_scaling_beta"}) {
    if (scaling.Text(key) == "null") continue;
    return absl::FailedPreconditionError(
        absl::StrCat("unsupported: ", std::string(key), " is ", Quoted(scaling.Text(key))));
  }
  return absl::OkStatus();
}

// `scaling` is rope_scaling or rope_parameters; the type may stand under its old name.
absl::Status ReadScaling(const JsonObject& config, const JsonObject& scaling, const Family& family,
                         int max_context, RopeMetadata& rope) {
  BATON_ASSIGN_OR_RETURN(auto type, scaling.String("rope_type"));
  if (!type.has_value()) {
    BATON_ASSIGN_OR_RETURN(type, scaling.String("type"));
  }
  BATON_RETURN_IF_ERROR(CheckRefusedKeys(scaling));
  const std::string name = type.value_or("default");
  if (name == "default") return absl::OkStatus();
  rope.factor = 0.0f;  // refused later
  BATON_RETURN_IF_ERROR(ReadFloat(scaling, "factor", rope.factor));
  if (name == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return absl::OkStatus();
  }
  if (name == "dynamic") {
    rope.scaling = RopeScaling::kDynamic;
    rope.original_max_position = max_context;
    return absl::OkStatus();
  }
  if (name == "llama3") return ReadLlama3(config, scaling, rope);
  // Early files of Phi-3 say su or yarn and mean longrope.
  if (name == "longrope" || name == "su" || (name == "yarn" && scaling.IsArray("long_factor"))) {
    return ReadLongRope(config, scaling, family, max_context, rope);
  }
  if (name == "yarn") return ReadYarn(config, scaling, max_context, rope);
  return absl::FailedPreconditionError(
      absl::StrCat("unsupported rope scaling: ", Quoted(name),
                   "; supported: default, linear, dynamic, llama3, yarn, longrope"));
}

absl::StatusOr<int> RotatedDimensions(const Settings& settings, int head_dim) {
  BATON_ASSIGN_OR_RETURN(const auto partial, settings.Number("partial_rotary_factor"));
  if (!partial.has_value()) return head_dim;
  if (!(*partial > 0.0 && *partial <= 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key 'partial_rotary_factor' out of range: ", *partial, ", must be in (0, 1]"));
  }
  return static_cast<int>(*partial * head_dim);
}

absl::StatusOr<RopeMetadata> ReadOne(const Settings& settings, std::string_view theta_key,
                                     double default_theta, const Family& family,
                                     const ModelMetadata& metadata) {
  RopeMetadata rope;
  std::optional<double> theta;
  if (settings.scaling.has_value()) {
    BATON_ASSIGN_OR_RETURN(theta, settings.scaling->Number("rope_theta"));
    BATON_RETURN_IF_ERROR(
        ReadScaling(settings.config, *settings.scaling, family, metadata.max_context, rope));
  }
  if (!theta.has_value()) {
    BATON_ASSIGN_OR_RETURN(theta, settings.config.Number(theta_key));
  }
  rope.theta = static_cast<float>(theta.value_or(default_theta));
  BATON_ASSIGN_OR_RETURN(rope.dim, RotatedDimensions(settings, metadata.head_dim));
  return rope;
}

// The object that holds the scaling, under its new or its old name.
absl::StatusOr<std::optional<JsonObject>> ScalingObject(const JsonObject& config) {
  BATON_ASSIGN_OR_RETURN(auto parameters, config.Object("rope_parameters"));
  BATON_ASSIGN_OR_RETURN(auto scaling, config.Object("rope_scaling"));
  if (parameters.has_value() && parameters->Keys().empty()) parameters.reset();
  if (scaling.has_value() && scaling->Keys().empty()) scaling.reset();
  if (!parameters.has_value() || !scaling.has_value()) {
    return parameters.has_value() ? parameters : scaling;
  }
  if (config.Text("rope_parameters") == config.Text("rope_scaling")) return parameters;
  return absl::InvalidArgumentError(
      "'rope_parameters' and 'rope_scaling' are both given and differ; keep one of them");
}

// One base for all layers must not be stated twice with two values. Bases of single kinds of layers
// come before a general one.
absl::Status CheckOneBase(const JsonObject& config, const JsonObject& given) {
  BATON_ASSIGN_OR_RETURN(const auto outer, config.Number("rope_theta"));
  BATON_ASSIGN_OR_RETURN(const auto inner, given.Number("rope_theta"));
  if (!outer.has_value() || inner.value_or(*outer) == *outer) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'rope_theta' is given twice and differs: ", *outer, " of the model, ", *inner,
                   " of its rope scaling; keep one of them"));
}

}  // namespace

absl::Status ReadHuggingFaceRope(const JsonObject& config, const Family& family,
                                 ModelMetadata& metadata) {
  const Arithmetic& arithmetic = family.arithmetic;
  BATON_ASSIGN_OR_RETURN(const std::optional<JsonObject> given, ScalingObject(config));
  std::optional<JsonObject> full = given;
  std::optional<JsonObject> sliding;
  const bool nested = given.has_value() && (given->IsObject(kFull) || given->IsObject(kSliding));
  if (given.has_value() && !nested) BATON_RETURN_IF_ERROR(CheckOneBase(config, *given));
  if (nested) {
    BATON_ASSIGN_OR_RETURN(full, given->Object(kFull));
    BATON_ASSIGN_OR_RETURN(sliding, given->Object(kSliding));
  }
  BATON_ASSIGN_OR_RETURN(metadata.rope, ReadOne({config, full}, "rope_theta", arithmetic.rope_theta,
                                                family, metadata));
  if (arithmetic.local_rope_theta > 0) {
    BATON_ASSIGN_OR_RETURN(metadata.local_rope,
                           ReadOne({config, sliding}, "rope_local_base_freq",
                                   arithmetic.local_rope_theta, family, metadata));
  } else if (sliding.has_value()) {
    BATON_ASSIGN_OR_RETURN(metadata.local_rope, ReadOne({config, sliding}, "rope_theta",
                                                        arithmetic.rope_theta, family, metadata));
  }
  BATON_RETURN_IF_ERROR(CheckRope(metadata));
  return ScaleContext(arithmetic.context_scaled, metadata);
}

}  // namespace baton::checkpoint
