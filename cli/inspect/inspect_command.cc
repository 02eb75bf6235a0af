#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/config/loader.h"
#include "cli/inspect/model_report.h"
#include "cli/inspect/text_report.h"
#include "cli/model_locator.h"
#include "common/status.h"
#include "engine/model/model_plan.h"
#include "router/served_model.h"

namespace baton::cli {
namespace {

struct InspectConfig {
  std::string model;
  std::string tokenize;
  std::string render;
  std::string chat_template;
  template <class Visitor>
  void VisitFields(Visitor&& field) {
    field(model, "model", {}, "Path of a .gguf file or a Hugging Face directory.");
    field(tokenize, "tokenize", {}, "Text: print its tokens as the model's tokenizer makes them.");
    field(render, "render", {},
          "JSON file of a chat request, or of its list of messages: print the prompt that the chat "
          "template makes of it.");
    field(chat_template, "chat-template", {},
          "File of a chat template (Jinja) to use instead of the model's.");
  }
};

absl::StatusOr<std::unique_ptr<const router::ServedModel>> LoadText(const InspectConfig& config) {
  return router::ServedModel::Load({.path = config.model,
                                    .names = {},
                                    .max_context = 0,
                                    .chat_template_path = config.chat_template});
}

// Everything the files say, and what Baton makes of it.
absl::Status Report(const InspectConfig& config) {
  BATON_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::Checkpoint::Open(config.model));
  BATON_ASSIGN_OR_RETURN(const engine::ModelPlan plan,
                         engine::MakeModelPlan(checkpoint->metadata(), 0));
  PrintRow("model", config.model);
  PrintArchitecture(checkpoint->metadata());
  PrintPlan(plan);
  PrintWeights(*checkpoint);
  const checkpoint::TextAssets& assets = checkpoint->text_assets();
  if (assets.gguf.has_value() || assets.tokenizer_json.has_value()) {
    BATON_ASSIGN_OR_RETURN(const auto text, LoadText(config));
    PrintText(assets, *text);
  } else {
    PrintRow("tokenizer", "none: only token ids can be served");
  }
  PrintMemory(*checkpoint);
  PrintRow("fingerprint", checkpoint->fingerprint());
  return absl::OkStatus();
}

absl::Status Run(const InspectConfig& config, bool tokenize, bool render) {
  if (!tokenize && !render) return Report(config);
  BATON_ASSIGN_OR_RETURN(const auto text, LoadText(config));
  if (tokenize) PrintTokens(*text, config.tokenize);
  return render ? PrintRendered(*text, config.render) : absl::OkStatus();
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "baton inspect: %s\n", std::string(status.message()).c_str());
  return code;
}

}  // namespace

int RunInspect(const std::vector<std::string>& args) {
  InspectConfig config;
  auto settings = CollectSettings(config);
  auto loaded = LoadSettings(settings, args, /*max_positional=*/1);
  if (!loaded.ok()) return Fail(loaded.status(), 2);
  if (loaded->help) {
    std::printf("%s", HelpText("usage: baton inspect MODEL [--tokenize TEXT] [--render FILE.json]",
                               settings)
                          .c_str());
    return 0;
  }
  if (!loaded->positional.empty()) config.model = loaded->positional[0];
  if (config.model.empty()) {
    const auto found = FindDefaultModel();
    if (!found.ok()) return Fail(found.status(), 1);
    config.model = *found;
  }
  const absl::Status status =
      Run(config, loaded->given.count("tokenize") > 0, loaded->given.count("render") > 0);
  return status.ok() ? 0 : Fail(status, 1);
}

}  // namespace baton::cli
