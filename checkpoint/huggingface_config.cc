#include "checkpoint/huggingface_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/huggingface_layers.h"
#include "checkpoint/huggingface_rope.h"
#include "checkpoint/hyperparameters.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

// Numbers of generation_config.json that become sampling defaults.
constexpr std::string_view kSamplingKeys[] = {
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens"};

// Settings of any config.json that change the arithmetic in ways that no family has.
constexpr FixedSetting kNeverOther[] = {
    {"is_encoder_decoder", "false"},
    {"clip_qkv", "null"},
};

// Some libraries choose the class by the one key and some by the other. A type that no family has
// ("Yi", "mistral3") says nothing.
absl::Status CheckModelType(const Family& family, std::string_view name, std::string_view type) {
  const Family* other = FindFamilyByModelType(type);
  if (other == nullptr || other == &family) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("keys disagree: 'architectures' names ", Quoted(name), ", 'model_type' is ",
                   Quoted(type), ", which are different families; correct the wrong one"));
}

absl::StatusOr<const Family*> ReadFamily(const JsonObject& config) {
  BATON_ASSIGN_OR_RETURN(const auto classes, config.Strings("architectures"));
  BATON_ASSIGN_OR_RETURN(const auto type, config.String("model_type"));
  if (classes.has_value() && !classes->empty()) {
    BATON_ASSIGN_OR_RETURN(const Family* family,
                           FindFamily(FileFormat::kHuggingFace, classes->front()));
    BATON_RETURN_IF_ERROR(CheckModelType(*family, classes->front(), type.value_or("")));
    return family;
  }
  if (!type.has_value()) {
    return absl::InvalidArgumentError("missing key: 'architectures', the model's class");
  }
  if (const Family* family = FindFamilyByModelType(*type)) return family;
  return FindFamily(FileFormat::kHuggingFace, *type);  // says what is supported
}

absl::Status CheckFixedSettings(std::span<const FixedSetting> settings, const Family& family,
                                const JsonObject& config) {
  for (const FixedSetting& setting : settings) {
    const std::string text = config.Text(setting.huggingface);
    if (text != "null" && text != setting.accepted) {
      return absl::FailedPreconditionError(absl::StrCat(
          "unsupported: ", std::string(setting.huggingface), " is ", Quoted(text), ", must be ",
          std::string(setting.accepted), " in architecture ", std::string(family.name)));
    }
  }
  return absl::OkStatus();
}

// Sizes, with the family's defaults for keys that are left out. A key that is null has none.
absl::Status ReadConfigSizes(const JsonObject& config, const Family& family,
                             ModelMetadata& metadata) {
  for (const SizeDefault& fallback : family.size_defaults) {
    for (const SizeKey& key : family.sizes) {
      if (key.field == fallback.field && !config.Has(key.huggingface)) {
        metadata.*key.field = fallback.value;
      }
    }
  }
  BATON_RETURN_IF_ERROR(ReadSizes(
      family, FileFormat::kHuggingFace, [&](std::string_view key) { return config.Integer(key); },
      metadata));
  return CompleteSizes(metadata);
}

absl::Status ReadActivation(const JsonObject& config, const Arithmetic& arithmetic,
                            ModelMetadata& metadata) {
  struct Name {
    std::string_view name;
    Activation activation;
  };
  constexpr Name kNames[] = {
      {"silu", Activation::kSilu},         {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},         {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh},
  };
  metadata.activation = arithmetic.activation;
  BATON_ASSIGN_OR_RETURN(const auto stated, config.String(arithmetic.activation_key));
  if (!stated.has_value()) return absl::OkStatus();
  for (const Name& name : kNames) {
    if (name.name != *stated) continue;
    metadata.activation = name.activation;
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("unsupported: ", std::string(arithmetic.activation_key), " is ", Quoted(*stated),
                   ", must be silu, gelu or gelu_pytorch_tanh"));
}

absl::Status ReadBiases(const JsonObject& config, const Family& family, ModelMetadata& metadata) {
  metadata.attention_bias = family.attention_bias == AttentionBias::kAlways;
  if (family.attention_bias == AttentionBias::kByKey) {
    BATON_ASSIGN_OR_RETURN(const auto stated, config.Bool("attention_bias"));
    metadata.attention_bias = metadata.output_bias = stated.value_or(false);
  }
  if (!family.mlp_bias) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const auto stated, config.Bool("mlp_bias"));
  metadata.mlp_bias = stated.value_or(false);
  return absl::OkStatus();
}

// A cap that is null is none; one that is left out is the family's.
absl::Status ReadSoftcap(const JsonObject& config, std::string_view key, float missing,
                         float& cap) {
  BATON_ASSIGN_OR_RETURN(const auto stated, config.Number(key));
  if (stated.has_value() && !(*stated > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", Quoted(key), " out of range: ", *stated, ", must be positive"));
  }
  cap = config.Has(key) ? static_cast<float>(stated.value_or(0.0)) : missing;
  return absl::OkStatus();
}

absl::Status ReadArithmetic(const JsonObject& config, const Arithmetic& arithmetic,
                            ModelMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(const auto eps, config.Number("rms_norm_eps"));
  BATON_ASSIGN_OR_RETURN(const auto tied, config.Bool("tie_word_embeddings"));
  metadata.rms_norm_eps = static_cast<float>(eps.value_or(arithmetic.rms_norm_eps));
  metadata.tied_embeddings = tied.value_or(arithmetic.tied_embeddings);
  metadata.norm_offset = arithmetic.norm_offset;
  metadata.qk_norm = arithmetic.qk_norm;
  metadata.post_norms = arithmetic.post_norms;
  if (arithmetic.scaled_embeddings) {
    metadata.embedding_scale = std::sqrt(static_cast<float>(metadata.hidden_size));
  }
  if (arithmetic.query_scale) {
    BATON_ASSIGN_OR_RETURN(const auto scalar, config.Number("query_pre_attn_scalar"));
    const double stated = scalar.value_or(arithmetic.query_scalar);
    if (!(stated > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("key 'query_pre_attn_scalar' out of range: ", stated, ", must be positive"));
    }
    metadata.attention_scale = static_cast<float>(1.0 / std::sqrt(stated));
  }
  if (arithmetic.softcaps) {
    BATON_RETURN_IF_ERROR(ReadSoftcap(config, "attn_logit_softcapping",
                                      arithmetic.attention_softcap, metadata.attention_softcap));
    BATON_RETURN_IF_ERROR(ReadSoftcap(config, "final_logit_softcapping", arithmetic.logit_softcap,
                                      metadata.logit_softcap));
  }
  return CheckNumbers(metadata);
}

// The first of `keys` that is there, else `missing`; what does not fit an int becomes -1.
absl::StatusOr<int> FirstOf(const JsonObject& config, std::span<const std::string_view> keys,
                            int missing) {
  for (const std::string_view key : keys) {
    BATON_ASSIGN_OR_RETURN(const auto stated, config.Integer(key));
    if (!stated.has_value()) continue;
    return *stated >= 0 && *stated <= 1 << 30 ? static_cast<int>(*stated) : -1;
  }
  return missing;
}

absl::Status ReadExperts(const JsonObject& config, const ExpertRule& rule,
                         ModelMetadata& metadata) {
  if (rule.count_key.empty()) return absl::OkStatus();
  // Releases of transformers differ in which of the two names they write.
  const std::string_view counts[] = {rule.count_key, "num_local_experts", "num_experts"};
  const std::string_view per_token[] = {"num_experts_per_tok"};
  const std::string_view size[] = {rule.size_key};
  BATON_ASSIGN_OR_RETURN(metadata.num_experts, FirstOf(config, counts, rule.count));
  BATON_ASSIGN_OR_RETURN(metadata.experts_per_token, FirstOf(config, per_token, rule.per_token));
  BATON_ASSIGN_OR_RETURN(metadata.expert_intermediate_size, FirstOf(config, size, rule.size));
  if (rule.normalize_by_key) {
    BATON_ASSIGN_OR_RETURN(const auto normalize, config.Bool("norm_topk_prob"));
    metadata.normalize_expert_weights = normalize.value_or(false);
  }
  return CheckExperts(metadata);
}

// The object that holds the settings of the text model.
absl::StatusOr<JsonObject> TextSettings(const JsonObject& config, const Family& family) {
  if (family.text_config.empty()) return config;
  BATON_ASSIGN_OR_RETURN(const auto inner, config.Object(family.text_config));
  return inner.value_or(config);
}

// A special token is a string, or an object with it under "content".
absl::StatusOr<std::optional<std::string>> TokenText(const JsonObject& config,
                                                     std::string_view key) {
  if (!config.IsObject(key)) return config.String(key);
  BATON_ASSIGN_OR_RETURN(const auto object, config.Object(key));
  return object->String("content");
}

// Tokens that only some tokenizers have ("image_token"), by their role.
absl::Status AddExtraTokens(const JsonObject& config, std::string_view key, TextAssets& assets) {
  if (!config.IsObject(key)) return absl::OkStatus();  // also written as a list, without roles
  BATON_ASSIGN_OR_RETURN(const auto tokens, config.Object(key));
  for (const std::string& role : tokens->Keys()) {
    if (!tokens->IsString(role) && !tokens->IsObject(role)) continue;
    BATON_ASSIGN_OR_RETURN(const auto text, TokenText(*tokens, role));
    if (text.has_value()) assets.special_tokens.emplace(role, *text);
  }
  return absl::OkStatus();
}

// One entry of a list of templates: {"name": ..., "template": ...}.
absl::Status AddNamedTemplate(const JsonObject& entry, TextAssets& assets) {
  BATON_ASSIGN_OR_RETURN(const auto name, entry.String("name"));
  BATON_ASSIGN_OR_RETURN(auto source, entry.String("template"));
  if (!name.has_value() || !source.has_value()) {
    return absl::InvalidArgumentError(
        "key 'chat_template': every entry of the list must have a 'name' and a 'template'");
  }
  if (*name == "default") {
    assets.chat_template = *std::move(source);
  } else {
    assets.named_chat_templates[*name] = *std::move(source);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HuggingFaceConfig> ReadHuggingFaceConfig(const JsonObject& whole) {
  HuggingFaceConfig result;
  BATON_ASSIGN_OR_RETURN(result.family, ReadFamily(whole));
  const Family& family = *result.family;
  BATON_ASSIGN_OR_RETURN(const JsonObject config, TextSettings(whole, family));
  BATON_RETURN_IF_ERROR(CheckFixedSettings(kNeverOther, family, config));
  BATON_RETURN_IF_ERROR(CheckFixedSettings(family.fixed, family, config));
  ModelMetadata& metadata = result.metadata;
  metadata.architecture = std::string(family.name);
  metadata.format = "huggingface";
  BATON_RETURN_IF_ERROR(ReadConfigSizes(config, family, metadata));
  BATON_RETURN_IF_ERROR(ReadActivation(config, family.arithmetic, metadata));
  BATON_RETURN_IF_ERROR(ReadBiases(config, family, metadata));
  BATON_RETURN_IF_ERROR(ReadArithmetic(config, family.arithmetic, metadata));
  BATON_RETURN_IF_ERROR(ReadExperts(config, family.experts, metadata));
  BATON_RETURN_IF_ERROR(ReadHuggingFaceRope(config, family, metadata));
  BATON_RETURN_IF_ERROR(ReadHuggingFaceLayers(config, family, metadata));
  return result;
}

absl::Status AddGenerationConfig(const JsonObject& config, int vocab_size, TextAssets& assets) {
  const auto in_vocabulary = [&](std::int64_t id) { return id >= 0 && id < vocab_size; };
  BATON_ASSIGN_OR_RETURN(const std::vector<std::int64_t> bos, config.IntegerOrList("bos_token_id"));
  if (!bos.empty() && !assets.bos_id.has_value() && in_vocabulary(bos.front())) {
    assets.bos_id = static_cast<std::int32_t>(bos.front());
  }
  BATON_ASSIGN_OR_RETURN(const std::vector<std::int64_t> eos, config.IntegerOrList("eos_token_id"));
  for (const std::int64_t id : eos) {
    if (in_vocabulary(id)) assets.eos_ids.push_back(static_cast<std::int32_t>(id));
  }
  std::sort(assets.eos_ids.begin(), assets.eos_ids.end());
  assets.eos_ids.erase(std::unique(assets.eos_ids.begin(), assets.eos_ids.end()),
                       assets.eos_ids.end());
  for (const std::string_view key : kSamplingKeys) {
    BATON_ASSIGN_OR_RETURN(const auto number, config.Number(key));
    if (number.has_value()) assets.generation_defaults.emplace(std::string(key), *number);
  }
  return absl::OkStatus();
}

absl::Status AddTokenizerConfig(const JsonObject& config, TextAssets& assets) {
  constexpr std::string_view kSuffix = "_token";
  for (const std::string& key : config.Keys()) {
    const bool text_or_object = config.IsString(key) || config.IsObject(key);
    if (!std::string_view(key).ends_with(kSuffix) || !text_or_object) continue;
    BATON_ASSIGN_OR_RETURN(const auto text, TokenText(config, key));
    if (text.has_value()) assets.special_tokens.emplace(key, *text);
  }
  BATON_RETURN_IF_ERROR(AddExtraTokens(config, "extra_special_tokens", assets));
  BATON_RETURN_IF_ERROR(AddExtraTokens(config, "model_specific_special_tokens", assets));
  return AddChatTemplates(config, assets);
}

absl::Status AddChatTemplates(const JsonObject& config, TextAssets& assets) {
  constexpr std::string_view kKey = "chat_template";
  if (assets.chat_template.has_value() || !assets.named_chat_templates.empty()) {
    return absl::OkStatus();
  }
  if (!config.IsArray(kKey)) {
    BATON_ASSIGN_OR_RETURN(assets.chat_template, config.String(kKey));
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(const auto list, config.Objects(kKey));
  for (const JsonObject& entry : *list) BATON_RETURN_IF_ERROR(AddNamedTemplate(entry, assets));
  if (list->size() == 1 && !assets.chat_template.has_value()) {  // whatever it is called
    assets.chat_template = std::move(assets.named_chat_templates.begin()->second);
    assets.named_chat_templates.clear();
  }
  return absl::OkStatus();
}

}  // namespace baton::checkpoint
