#include "cli/inspect/model_report.h"

#include <sys/sysinfo.h>

#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "checkpoint/inspect.h"

namespace baton::cli {
namespace {

using checkpoint::Activation;
using checkpoint::ModelMetadata;
using checkpoint::RopeMetadata;
using checkpoint::RopeScaling;

std::string HumanBytes(double bytes) {
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = next;
  }
  return absl::StrFormat(bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, unit);
}

const char* ScalingName(RopeScaling scaling) {
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

const char* ActivationName(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "SiLU";
    case Activation::kGeluTanh:
      return "GELU (tanh)";
    case Activation::kGelu:
      return "GELU (erf)";
  }
  return "unknown";
}

std::string RopeText(const RopeMetadata& rope, int head_dim) {
  std::string text = absl::StrFormat("theta %g", rope.theta);
  if (rope.dim != head_dim) absl::StrAppend(&text, ", ", rope.dim, " of ", head_dim, " dimensions");
  if (rope.scaling != RopeScaling::kNone) {
    absl::StrAppend(&text, ", scaling ", ScalingName(rope.scaling),
                    absl::StrFormat(", factor %g", rope.factor));
  }
  if (!rope.frequency_factors.empty()) absl::StrAppend(&text, ", factors from the file");
  absl::StrAppend(&text, rope.interleaved ? ", neighbours paired" : ", halves paired");
  return text;
}

std::string LayerText(const engine::LayerPlan& layer) {
  std::vector<std::string> parts;
  parts.push_back(
      absl::StrFormat("%d/%d heads of %d", layer.num_heads, layer.num_kv_heads, layer.head_dim));
  parts.push_back(layer.window == 0 ? std::string("full attention")
                                    : absl::StrFormat("window %d", layer.window));
  if (layer.qk_norm) parts.push_back("q/k norm");
  if (layer.attention_softcap > 0) {
    parts.push_back(absl::StrFormat("scores capped at %g", layer.attention_softcap));
  }
  parts.push_back(layer.rope < 0 ? std::string("no rope") : absl::StrCat("rope ", layer.rope));
  const char* activation = ActivationName(layer.activation);
  if (layer.num_experts > 0) {
    parts.push_back(absl::StrFormat("%d of %d experts of %d, %s", layer.experts_per_token,
                                    layer.num_experts, layer.intermediate_size, activation));
  } else {
    parts.push_back(absl::StrFormat("MLP %d, %s", layer.intermediate_size, activation));
  }
  if (layer.post_norms) parts.push_back("post-norms");
  return absl::StrJoin(parts, ", ");
}

// "0-4, 6-10, 12"
std::string Ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ", ", numbers[i]);
    if (end - i > 1) absl::StrAppend(&text, "-", numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace

void PrintRow(const char* name, const std::string& value) {
  std::printf("%-22s %s\n", name, value.c_str());
}

void PrintArchitecture(const ModelMetadata& model) {
  PrintRow("family", absl::StrCat(model.architecture, " (", model.format, ")"));
  PrintRow("sizes", absl::StrFormat("%d layers, hidden %d", model.num_layers, model.hidden_size));
  PrintRow("attention", absl::StrFormat("%d query heads, %d KV heads, head size %d%s",
                                        model.num_heads, model.num_kv_heads, model.head_dim,
                                        model.attention_bias ? ", biases" : ""));
  if (model.num_experts > 0) {
    PrintRow("experts", absl::StrFormat("%d, %d for each token, feed-forward %d", model.num_experts,
                                        model.experts_per_token, model.expert_intermediate_size));
  } else {
    PrintRow("feed-forward", absl::StrCat(model.intermediate_size));
  }
  PrintRow("vocabulary",
           absl::StrFormat("%d tokens, head %s", model.vocab_size,
                           model.tied_embeddings ? "tied to the embedding" : "untied"));
  PrintRow("context", absl::StrFormat("%d tokens", model.max_context));
  PrintRow("rope", RopeText(model.rope, model.head_dim));
  if (model.local_rope.has_value()) {
    PrintRow("", absl::StrCat(RopeText(*model.local_rope, model.head_dim), ", in windowed layers"));
  }
  std::vector<std::string> extras;
  if (model.embedding_scale != 1.0f) {
    extras.push_back(absl::StrFormat("embeddings times %g", model.embedding_scale));
  }
  if (model.logit_softcap > 0) {
    extras.push_back(absl::StrFormat("logits capped at %g", model.logit_softcap));
  }
  if (model.norm_offset != 0) {
    extras.push_back(absl::StrFormat("norm weights plus %g", model.norm_offset));
  }
  if (!extras.empty()) PrintRow("also", absl::StrJoin(extras, ", "));
}

void PrintPlan(const engine::ModelPlan& plan) {
  std::vector<std::string> kinds;           // in order of first layer
  std::vector<std::vector<int>> layers_of;  // [kinds]
  for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer) {
    const std::string text = LayerText(plan.layers[layer]);
    std::size_t kind = 0;
    while (kind < kinds.size() && kinds[kind] != text) ++kind;
    if (kind == kinds.size()) {
      kinds.push_back(text);
      layers_of.emplace_back();
    }
    layers_of[kind].push_back(layer);
  }
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    PrintRow(kind == 0 ? "plan" : "",
             absl::StrCat("layers ", Ranges(layers_of[kind]), ": ", kinds[kind]));
  }
}

void PrintWeights(const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::ModelFacts facts = checkpoint::Inspect(checkpoint);
  PrintRow("parameters", absl::StrFormat("%.1f M", static_cast<double>(facts.parameters) / 1e6));
  PrintRow("weights", absl::StrFormat("%s, %.2f bits each",
                                      HumanBytes(static_cast<double>(facts.tensor_bytes)),
                                      facts.bits_per_parameter));
  for (const auto& [dtype, share] : facts.by_type) {
    PrintRow("", absl::StrFormat("%-7s %5d tensors, %8.1f M parameters, %s",
                                 std::string(checkpoint::DTypeName(dtype)), share.tensors,
                                 static_cast<double>(share.parameters) / 1e6,
                                 HumanBytes(static_cast<double>(share.bytes))));
  }
}

void PrintMemory(const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::ModelFacts facts = checkpoint::Inspect(checkpoint);
  struct sysinfo machine {};
  sysinfo(&machine);
  const double total = static_cast<double>(machine.totalram) * machine.mem_unit;
  for (const int bytes : {2, 4}) {
    const auto per_token = static_cast<double>(checkpoint::KvBytesPerToken(facts.metadata, bytes));
    // A tenth is left to the system and to activations.
    const double room = 0.9 * total - static_cast<double>(facts.tensor_bytes);
    const double tokens = room > 0 ? room / per_token : 0;
    PrintRow(bytes == 2 ? "KV cache in f16" : "KV cache in f32",
             absl::StrFormat("%s a token; %s of memory hold the weights and %.0f tokens (%.1f full "
                             "contexts)",
                             HumanBytes(per_token), HumanBytes(total), tokens,
                             tokens / facts.metadata.max_context));
  }
}

}  // namespace baton::cli
