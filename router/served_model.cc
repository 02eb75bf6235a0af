#include "router/served_model.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mapped_file.h"
#include "common/status.h"
#include "text/jinja/limits.h"

namespace baton::router {
namespace {

// "SmolLM2-135M-Instruct.Q4_1" of a .gguf file, the last folder's name of a directory.
std::string DefaultName(const std::string& path) {
  std::filesystem::path place(path);
  if (!place.has_filename()) place = place.parent_path();
  return place.extension() == ".gguf" ? place.stem().string() : place.filename().string();
}

absl::StatusOr<std::unique_ptr<const text::ChatTemplateSet>> LoadTemplates(
    const ServedModel::Options& options, const checkpoint::TextAssets& assets) {
  if (options.chat_template_path.empty()) {
    auto set = text::ChatTemplateSet::Create(assets);
    if (set.ok()) return set;
    return Annotate(absl::Status(set.status().code(),
                                 absl::StrCat(set.status().message(),
                                              "; give another one with --chat-template FILE")),
                    "chat template of " + options.path);
  }
  absl::StatusOr<std::string> source =
      checkpoint::ReadTextFile(options.chat_template_path, text::jinja::kMaxSourceBytes);
  if (!source.ok()) return Annotate(source.status(), "chat template");
  checkpoint::TextAssets overridden;
  overridden.special_tokens = assets.special_tokens;
  overridden.chat_template = *std::move(source);
  auto set = text::ChatTemplateSet::Create(overridden);
  if (!set.ok()) return Annotate(set.status(), "chat template " + options.chat_template_path);
  return set;
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
  BATON_ASSIGN_OR_RETURN(model->chat_templates, LoadTemplates(options, assets));
  std::set<std::int32_t> ends(assets.eos_ids.begin(), assets.eos_ids.end());
  if (model->chat_templates != nullptr) {
    const std::vector<std::int32_t> marks = model->chat_templates->EndIds(*model->tokenizer);
    ends.insert(marks.begin(), marks.end());
  }
  model->eos_ids.assign(ends.begin(), ends.end());
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
