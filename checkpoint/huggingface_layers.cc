#include "checkpoint/huggingface_layers.h"

#include <algorithm>
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

absl::Status OutOfRange(std::string_view key, std::int64_t value, std::int64_t most) {
  return absl::InvalidArgumentError(
      absl::StrFormat("key %s out of range: %d, must be 1..%d", Quoted(key), value, most));
}

// A whole number in 1..most, `missing` where the key is not there.
absl::StatusOr<int> Positive(const JsonObject& config, std::string_view key, int missing,
                             int most) {
  BATON_ASSIGN_OR_RETURN(const auto stated, config.Integer(key));
  if (!stated.has_value()) return missing;
  if (*stated < 1 || *stated > most) return OutOfRange(key, *stated, most);
  return static_cast<int>(*stated);
}

// 0: no window. A window that is null is none; one that is missing is the family's.
absl::StatusOr<int> Window(const JsonObject& config, const WindowRule& rule) {
  constexpr std::string_view kKey = "sliding_window";
  if (rule.switched) {
    BATON_ASSIGN_OR_RETURN(const auto used, config.Bool("use_sliding_window"));
    if (!used.value_or(false)) return 0;
  }
  return Positive(config, kKey, config.Has(kKey) ? 0 : rule.window, kMostContext);
}

// "no_rope_layers" holds 1 for a layer that is rotated.
absl::Status ReadUnrotatedLayers(const JsonObject& config, int default_period,
                                 ModelMetadata& metadata) {
  if (default_period == 0) return absl::OkStatus();
  const int layers = metadata.num_layers;
  BATON_ASSIGN_OR_RETURN(const auto listed, config.IntegerOrList("no_rope_layers"));
  BATON_ASSIGN_OR_RETURN(const int period,
                         Positive(config, "no_rope_layer_interval", default_period, 1 << 20));
  if (!listed.empty() && static_cast<int>(listed.size()) < layers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("key 'no_rope_layers': %d entries for %d layers", listed.size(), layers));
  }
  metadata.no_rope_layers.resize(static_cast<std::size_t>(layers));
  for (int layer = 0; layer < layers; ++layer) {
    metadata.no_rope_layers[layer] =
        listed.empty() ? (layer + 1) % period == 0 : listed[layer] == 0;
  }
  return absl::OkStatus();
}

// "layer_types" of config.json; empty when it is not there.
absl::StatusOr<std::vector<bool>> ListedWindows(const JsonObject& config, int num_layers) {
  std::vector<bool> windowed;
  BATON_ASSIGN_OR_RETURN(const auto types, config.Strings("layer_types"));
  if (!types.has_value()) return windowed;
  if (static_cast<int>(types->size()) != num_layers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("key 'layer_types': %d entries for %d layers", types->size(), num_layers));
  }
  for (const std::string& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return absl::FailedPreconditionError(
          absl::StrCat("unsupported layer type: ", Quoted(type),
                       "; supported: full_attention, sliding_attention"));
    }
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

absl::StatusOr<std::vector<bool>> WindowsByRule(const JsonObject& config, const WindowRule& rule,
                                                const ModelMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(const auto first, config.Integer("max_window_layers"));
  BATON_ASSIGN_OR_RETURN(const int period, Positive(config, "sliding_window_pattern",
                                                    std::max(rule.period, 1), 1 << 20));
  std::vector<bool> windowed(static_cast<std::size_t>(metadata.num_layers));
  for (int layer = 0; layer < metadata.num_layers; ++layer) {
    switch (rule.layers) {
      case WindowedLayers::kNone:
        break;
      case WindowedLayers::kAll:
        windowed[layer] = true;
        break;
      case WindowedLayers::kFromLayer:
        windowed[layer] = layer >= first.value_or(rule.first_layer);
        break;
      case WindowedLayers::kPattern:
        windowed[layer] = (layer + 1) % period != 0;
        break;
      case WindowedLayers::kUnrotated:
        windowed[layer] = metadata.no_rope_layers[layer];
        break;
    }
  }
  return windowed;
}

absl::Status ReadWindows(const JsonObject& config, const WindowRule& rule,
                         ModelMetadata& metadata) {
  if (rule.layers == WindowedLayers::kNone) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const int window, Window(config, rule));
  BATON_ASSIGN_OR_RETURN(std::vector<bool> listed, ListedWindows(config, metadata.num_layers));
  std::vector<bool> windowed(static_cast<std::size_t>(metadata.num_layers));
  if (window > 0) {
    BATON_ASSIGN_OR_RETURN(windowed, WindowsByRule(config, rule, metadata));
  }
  if (!listed.empty() && listed != windowed) {
    if (!rule.layer_types) {
      return absl::FailedPreconditionError(
          "unsupported: 'layer_types' differs from what the architecture does in every layer");
    }
    windowed = std::move(listed);
  }
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) return absl::OkStatus();
  if (window == 0) {
    return absl::InvalidArgumentError(
        "key 'layer_types' names sliding_attention, but there is no 'sliding_window' in use");
  }
  SetWindow(window, std::move(windowed), metadata);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadHuggingFaceLayers(const JsonObject& config, const Family& family,
                                   ModelMetadata& metadata) {
  BATON_RETURN_IF_ERROR(ReadUnrotatedLayers(config, family.arithmetic.no_rope_period, metadata));
  BATON_RETURN_IF_ERROR(ReadWindows(config, family.windows, metadata));
  if (metadata.windowed_layers.empty()) metadata.local_rope.reset();
  return absl::OkStatus();
}

}  // namespace baton::checkpoint
