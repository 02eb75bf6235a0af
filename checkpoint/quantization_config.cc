#include "checkpoint/quantization_config.h"

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

constexpr const char* kSupported =
    "supported: awq (bits 4, version gemm, zero_point true) and gptq (bits 4, checkpoint_format "
    "gptq or gptq_v2, act-order or not), with a group_size that is a multiple of 32, or -1";
constexpr int kAllInputs = -1;
constexpr int kGroupMultiple = 32;  // columns of a block of DType::kInt4

absl::Status Unsupported(std::string_view key, std::string_view value) {
  return absl::FailedPreconditionError(absl::StrCat("unsupported quantization: ", std::string(key),
                                                    " is ", Quoted(value), "; ", kSupported));
}

// kFailedPrecondition unless `key` is absent or one of the JSON texts.
absl::Status CheckSetting(const JsonObject& config, std::string_view key,
                          std::initializer_list<std::string_view> accepted) {
  const std::string text = config.Text(key);
  if (text == "null") return absl::OkStatus();
  for (const std::string_view value : accepted) {
    if (absl::AsciiStrToLower(text) == value) return absl::OkStatus();
  }
  return Unsupported(key, text);
}

// The settings that both methods have.
absl::Status ReadCommon(const JsonObject& config, QuantizationConfig& result) {
  BATON_ASSIGN_OR_RETURN(const auto bits, config.Integer("bits"));
  if (bits.value_or(0) != 4) return Unsupported("bits", config.Text("bits"));
  BATON_ASSIGN_OR_RETURN(const auto group_size, config.Integer("group_size"));
  const std::int64_t size = group_size.value_or(0);
  if (size == kAllInputs) return absl::OkStatus();
  if (size < kGroupMultiple || size % kGroupMultiple != 0 || size > 1 << 20) {
    return Unsupported("group_size", config.Text("group_size"));
  }
  result.group_size = static_cast<int>(size);
  return absl::OkStatus();
}

absl::StatusOr<QuantizationConfig> ReadAwq(const JsonObject& config) {
  QuantizationConfig result{.method = QuantizationConfig::Method::kAwq};
  BATON_RETURN_IF_ERROR(ReadCommon(config, result));
  BATON_RETURN_IF_ERROR(CheckSetting(config, "version", {"\"gemm\""}));
  BATON_RETURN_IF_ERROR(CheckSetting(config, "zero_point", {"true"}));
  return result;
}

// GPTQModel's overrides by module name: a rule that begins with "-:" leaves modules unquantized,
// which their tensors show; any other changes how they are packed.
absl::Status CheckDynamic(const JsonObject& config) {
  BATON_ASSIGN_OR_RETURN(const auto dynamic, config.Object("dynamic"));
  if (!dynamic.has_value()) return absl::OkStatus();
  for (const std::string& rule : dynamic->Keys()) {
    if (!rule.starts_with("-:")) return Unsupported("dynamic", rule);
  }
  return absl::OkStatus();
}

absl::StatusOr<QuantizationConfig> ReadGptq(const JsonObject& config) {
  QuantizationConfig result{.method = QuantizationConfig::Method::kGptq, .zero_offset = 1};
  BATON_RETURN_IF_ERROR(ReadCommon(config, result));
  for (const char* key : {"checkpoint_format", "format"}) {  // newer writers say it twice
    BATON_RETURN_IF_ERROR(CheckSetting(config, key, {"\"gptq\"", "\"gptq_v2\""}));
    if (config.Text(key) == "\"gptq_v2\"") result.zero_offset = 0;
  }
  BATON_RETURN_IF_ERROR(CheckSetting(config, "is_marlin_format", {"false"}));
  BATON_RETURN_IF_ERROR(CheckSetting(config, "pack_dtype", {"\"int32\""}));
  BATON_RETURN_IF_ERROR(CheckDynamic(config));
  BATON_ASSIGN_OR_RETURN(const auto act_order, config.Bool("desc_act"));
  result.needs_group_index = act_order.value_or(false);
  return result;
}

}  // namespace

absl::StatusOr<std::optional<QuantizationConfig>> ReadQuantizationConfig(const JsonObject& config) {
  // An older name of what compressed-tensors writes today.
  BATON_RETURN_IF_ERROR(CheckSetting(config, "compression_config", {}));
  BATON_ASSIGN_OR_RETURN(const auto inner, config.Object("quantization_config"));
  if (!inner.has_value()) return std::optional<QuantizationConfig>();
  BATON_ASSIGN_OR_RETURN(const auto method, inner->String("quant_method"));
  const std::string name = absl::AsciiStrToLower(method.value_or(""));
  if (name != "awq" && name != "gptq") {
    return Unsupported("quant_method", method.value_or("missing"));
  }
  absl::StatusOr<QuantizationConfig> result = name == "awq" ? ReadAwq(*inner) : ReadGptq(*inner);
  if (!result.ok()) {
    return Annotate(result.status(), absl::StrCat("quantization_config of method ", name));
  }
  return std::optional(*std::move(result));
}

}  // namespace baton::checkpoint
