#include "checkpoint/huggingface_config.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/hyperparameters.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

constexpr double kDefaultRopeTheta = 10000.0;
constexpr double kDefaultRmsNormEps = 1e-6;  // LlamaConfig's

// Numbers of generation_config.json that become sampling defaults.
constexpr std::string_view kSamplingKeys[] = {
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens"};

absl::Status ReadLlama3Scaling(const JsonObject& scaling, RopeMetadata& rope) {
  rope.scaling = RopeScaling::kLlama3;
  BATON_ASSIGN_OR_RETURN(const auto low, scaling.Number("low_freq_factor"));
  BATON_ASSIGN_OR_RETURN(const auto high, scaling.Number("high_freq_factor"));
  BATON_ASSIGN_OR_RETURN(const auto original, scaling.Integer("original_max_position_embeddings"));
  rope.low_frequency_factor = static_cast<float>(low.value_or(1.0));
  rope.high_frequency_factor = static_cast<float>(high.value_or(4.0));
  const std::int64_t positions = original.value_or(0);
  if (positions < 1 || positions > 1 << 28) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key 'original_max_position_embeddings': missing or out of range: ", positions));
  }
  rope.original_max_position = static_cast<int>(positions);
  return absl::OkStatus();
}

// `scaling` is rope_scaling or rope_parameters; the type may stand under its old name.
absl::Status ReadScaling(const JsonObject& scaling, RopeMetadata& rope) {
  BATON_ASSIGN_OR_RETURN(auto type, scaling.String("rope_type"));
  if (!type.has_value()) {
    BATON_ASSIGN_OR_RETURN(type, scaling.String("type"));
  }
  const std::string name = type.value_or("default");
  if (name == "default") return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const auto factor, scaling.Number("factor"));
  rope.factor = static_cast<float>(factor.value_or(0.0));  // 0 is refused later
  if (name == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return absl::OkStatus();
  }
  if (name == "llama3") return ReadLlama3Scaling(scaling, rope);
  return absl::FailedPreconditionError(absl::StrCat("unsupported rope scaling: ", Quoted(name),
                                                    "; supported: default, linear, llama3"));
}

absl::Status ReadRope(const JsonObject& config, ModelMetadata& metadata) {
  RopeMetadata& rope = metadata.rope;
  BATON_ASSIGN_OR_RETURN(auto theta, config.Number("rope_theta"));
  BATON_ASSIGN_OR_RETURN(auto partial, config.Number("partial_rotary_factor"));
  BATON_ASSIGN_OR_RETURN(auto scaling, config.Object("rope_parameters"));
  if (!scaling.has_value()) {
    BATON_ASSIGN_OR_RETURN(scaling, config.Object("rope_scaling"));
  }
  if (scaling.has_value()) {
    BATON_ASSIGN_OR_RETURN(const auto inner_theta, scaling->Number("rope_theta"));
    BATON_ASSIGN_OR_RETURN(const auto inner_partial, scaling->Number("partial_rotary_factor"));
    if (inner_theta.has_value()) theta = inner_theta;
    if (inner_partial.has_value()) partial = inner_partial;
    BATON_RETURN_IF_ERROR(ReadScaling(*scaling, rope));
  }
  rope.theta = static_cast<float>(theta.value_or(kDefaultRopeTheta));
  if (partial.has_value() && *partial != 1.0) {
    if (!(*partial > 0.0 && *partial < 1.0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "key 'partial_rotary_factor' out of range: ", *partial, ", must be in (0, 1]"));
    }
    rope.dim = static_cast<int>(*partial * metadata.head_dim);
  }
  return absl::OkStatus();
}

absl::StatusOr<const Family*> ReadFamily(const JsonObject& config) {
  BATON_ASSIGN_OR_RETURN(const auto classes, config.Strings("architectures"));
  if (!classes.has_value() || classes->empty()) {
    return absl::InvalidArgumentError("missing key: 'architectures', the model's class");
  }
  return FindFamily(FileFormat::kHuggingFace, classes->front());
}

absl::Status CheckFixedSettings(const Family& family, const JsonObject& config) {
  for (const FixedSetting& setting : family.fixed) {
    const std::string text = config.Text(setting.huggingface);
    if (text != "null" && text != setting.accepted) {
      return absl::FailedPreconditionError(absl::StrCat(
          "unsupported: ", std::string(setting.huggingface), " is ", Quoted(text), ", must be ",
          std::string(setting.accepted), " in architecture ", std::string(family.name)));
    }
  }
  return absl::OkStatus();
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

absl::StatusOr<HuggingFaceConfig> ReadHuggingFaceConfig(const JsonObject& config) {
  HuggingFaceConfig result;
  BATON_ASSIGN_OR_RETURN(result.family, ReadFamily(config));
  BATON_RETURN_IF_ERROR(CheckFixedSettings(*result.family, config));
  ModelMetadata& metadata = result.metadata;
  metadata.architecture = std::string(result.family->name);
  metadata.format = "huggingface";
  BATON_RETURN_IF_ERROR(ReadSizes(
      *result.family, FileFormat::kHuggingFace,
      [&](std::string_view key) { return config.Integer(key); }, metadata));
  BATON_ASSIGN_OR_RETURN(const auto eps, config.Number("rms_norm_eps"));
  BATON_ASSIGN_OR_RETURN(const auto tied, config.Bool("tie_word_embeddings"));
  BATON_ASSIGN_OR_RETURN(const auto bias, config.Bool("attention_bias"));
  metadata.rms_norm_eps = static_cast<float>(eps.value_or(kDefaultRmsNormEps));
  metadata.tied_embeddings = tied.value_or(false);
  metadata.attention_bias = bias.value_or(false);
  BATON_RETURN_IF_ERROR(CompleteSizes(metadata));
  BATON_RETURN_IF_ERROR(ReadRope(config, metadata));
  BATON_RETURN_IF_ERROR(CompleteAndCheckRope(metadata));
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
