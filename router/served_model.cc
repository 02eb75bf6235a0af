#include "router/served_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "checkpoint/checkpoint.h"
#include "common/status.h"

namespace baton::router {
namespace {

// "SmolLM2-135M-Instruct.Q4_1" of a .gguf file, the last folder's name of a directory.
std::string DefaultName(const std::string& path) {
  std::filesystem::path place(path);
  if (!place.has_filename()) place = place.parent_path();
  return place.extension() == ".gguf" ? place.stem().string() : place.filename().string();
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError("cannot read the chat template: " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::StatusOr<std::unique_ptr<text::ChatTemplate>> LoadTemplate(
    const ServedModel::Options& options, const checkpoint::TextAssets& assets) {
  if (!options.chat_template_path.empty()) {
    BATON_ASSIGN_OR_RETURN(const std::string source, ReadText(options.chat_template_path));
    auto compiled = text::ChatTemplate::Compile(source, assets.special_tokens);
    if (!compiled.ok()) return Annotate(compiled.status(), options.chat_template_path);
    return compiled;
  }
  if (!assets.chat_template.has_value()) return std::unique_ptr<text::ChatTemplate>();
  auto compiled = text::ChatTemplate::Compile(*assets.chat_template, assets.special_tokens);
  if (!compiled.ok()) return Annotate(compiled.status(), "chat template of " + options.path);
  return compiled;
}

}  // namespace

bool ServedModel::Serves(std::string_view name) const {
  return name.empty() || name == path || std::find(names.begin(), names.end(), name) != names.end();
}

absl::StatusOr<std::unique_ptr<const ServedModel>> ServedModel::Load(const Options& options) {
  BATON_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::Checkpoint::Open(options.path));
  const checkpoint::TextAssets& assets = checkpoint->text_assets();
  auto model = std::make_unique<ServedModel>();
  model->path = options.path;
  model->names = options.names;
  if (model->names.empty()) model->names.push_back(DefaultName(options.path));
  auto tokenizer = text::Tokenizer::Create(assets);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), "tokenizer of " + options.path);
  model->tokenizer = *std::move(tokenizer);
  BATON_ASSIGN_OR_RETURN(model->chat_template, LoadTemplate(options, assets));
  model->eos_ids = assets.eos_ids;
  model->generation_defaults = assets.generation_defaults;
  model->max_context = checkpoint->metadata().max_context;
  if (options.max_context > model->max_context) {
    return absl::InvalidArgumentError(
        absl::StrFormat("max-model-len too large: %d, the model's positions allow %d; lower it",
                        options.max_context, model->max_context));
  }
  if (options.max_context > 0) model->max_context = options.max_context;
  model->fingerprint = checkpoint->fingerprint();
  model->loaded = absl::Now();
  return model;
}

}  // namespace baton::router
