#include <sys/sysinfo.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/inspect.h"
#include "cli/command.h"
#include "cli/config/loader.h"
#include "cli/model_locator.h"

namespace baton::cli {
namespace {

struct InspectConfig {
  std::string model;
  template <class Visitor>
  void VisitFields(Visitor&& field) {
    field(model, "model", {}, "Path of a .gguf file or a Hugging Face directory.");
  }
};

std::string HumanBytes(double bytes) {
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = next;
  }
  return absl::StrFormat(bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, unit);
}

void Row(const char* name, const std::string& value) {
  std::printf("%-22s %s\n", name, value.c_str());
}

void PrintArchitecture(const checkpoint::ModelFacts& facts) {
  const checkpoint::ModelMetadata& model = facts.metadata;
  Row("architecture", model.architecture + " (" + model.format + ")");
  Row("parameters", absl::StrFormat("%.1f M", static_cast<double>(facts.parameters) / 1e6));
  Row("layers", absl::StrFormat("%d, hidden %d, feed-forward %d", model.num_layers,
                                model.hidden_size, model.intermediate_size));
  Row("attention",
      absl::StrFormat("%d query heads, %d KV heads, head size %d%s", model.num_heads,
                      model.num_kv_heads, model.head_dim, model.attention_bias ? ", biases" : ""));
  Row("vocabulary", absl::StrFormat("%d tokens, head %s", model.vocab_size,
                                    model.tied_embeddings ? "tied to the embedding" : "untied"));
  Row("context", absl::StrFormat("%d tokens, RoPE theta %g", model.max_context, model.rope.theta));
}

void PrintSizes(const checkpoint::ModelFacts& facts) {
  Row("weights",
      absl::StrFormat("%s, %.2f bits each", HumanBytes(static_cast<double>(facts.tensor_bytes)),
                      facts.bits_per_parameter));
  for (const auto& [dtype, share] : facts.by_type) {
    Row("", absl::StrFormat("%-5s %4d tensors, %s", std::string(checkpoint::DTypeName(dtype)),
                            share.tensors, HumanBytes(static_cast<double>(share.bytes))));
  }
}

void PrintMemory(const checkpoint::ModelFacts& facts) {
  const checkpoint::ModelMetadata& model = facts.metadata;
  struct sysinfo machine {};
  sysinfo(&machine);
  const double total = static_cast<double>(machine.totalram) * machine.mem_unit;
  for (const int bytes : {2, 4}) {
    const double per_token = static_cast<double>(checkpoint::KvBytesPerToken(model, bytes));
    // A tenth is left to the system and to activations.
    const double room = 0.9 * total - static_cast<double>(facts.tensor_bytes);
    const double tokens = room > 0 ? room / per_token : 0;
    Row(bytes == 2 ? "KV cache in f16" : "KV cache in f32",
        absl::StrFormat("%s a token; %s of memory hold the weights and %.0f tokens (%.1f full "
                        "contexts)",
                        HumanBytes(per_token), HumanBytes(total), tokens,
                        tokens / model.max_context));
  }
}

}  // namespace

int RunInspect(const std::vector<std::string>& args) {
  InspectConfig config;
  auto settings = CollectSettings(config);
  auto loaded = LoadSettings(settings, args, /*max_positional=*/1);
  if (!loaded.ok()) {
    std::fprintf(stderr, "baton inspect: %s\n", std::string(loaded.status().message()).c_str());
    return 2;
  }
  if (loaded->help) {
    std::printf("%s", HelpText("usage: baton inspect MODEL", settings).c_str());
    return 0;
  }
  if (!loaded->positional.empty()) config.model = loaded->positional[0];
  if (config.model.empty()) {
    const auto found = FindDefaultModel();
    if (!found.ok()) {
      std::fprintf(stderr, "baton inspect: %s\n", std::string(found.status().message()).c_str());
      return 1;
    }
    config.model = *found;
  }
  const auto model = checkpoint::Checkpoint::Open(config.model);
  if (!model.ok()) {
    std::fprintf(stderr, "baton inspect: %s\n", std::string(model.status().message()).c_str());
    return 1;
  }
  const checkpoint::ModelFacts facts = checkpoint::Inspect(**model);
  Row("model", config.model);
  PrintArchitecture(facts);
  PrintSizes(facts);
  Row("tokenizer", facts.has_tokenizer ? "yes" : "no");
  Row("chat template", facts.has_chat_template ? "yes" : "no");
  PrintMemory(facts);
  Row("fingerprint", (*model)->fingerprint());
  return 0;
}

}  // namespace baton::cli
