#include "tests/support/golden_arch.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace baton::testing {
namespace {

namespace fs = std::filesystem;

bool HasWeights(const fs::path& folder) {
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [](const auto& entry) { return entry.path().extension() == ".safetensors"; });
}

fs::path WeightsOf(const fs::path& folder) {
  if (HasWeights(folder) || folder.parent_path().filename() != "variants") return folder;
  return folder.parent_path().parent_path();
}

absl::StatusOr<std::vector<ArchPrompt>> ReadPrompts(const fs::path& path) {
  std::ifstream stream(path);
  try {
    const auto golden = nlohmann::json::parse(stream);
    std::vector<ArchPrompt> prompts;
    for (const auto& entry : golden.at("cases")) {
      ArchPrompt& prompt = prompts.emplace_back();
      prompt.input_ids = entry.at("input_ids").get<std::vector<std::int32_t>>();
      prompt.last_logits = entry.at("last_logits").get<std::vector<float>>();
      if (const auto greedy = entry.find("greedy_ids"); greedy != entry.end()) {
        prompt.greedy_ids = greedy->get<std::vector<std::int32_t>>();
      }
    }
    if (prompts.empty())
      return absl::InvalidArgumentError(absl::StrCat("no cases: ", path.string()));
    return prompts;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", error.what()));
  }
}

}  // namespace

absl::StatusOr<std::vector<ArchModel>> FindArchModels(const std::string& folder) {
  std::vector<ArchModel> models;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    if (entry.path().filename() != "golden.json") continue;
    const fs::path directory = entry.path().parent_path();
    if (!fs::exists(directory / "config.json")) continue;
    BATON_ASSIGN_OR_RETURN(auto prompts, ReadPrompts(entry.path()));
    models.push_back({.name = fs::relative(directory, folder).string(),
                      .config = (directory / "config.json").string(),
                      .weights = WeightsOf(directory).string(),
                      .prompts = std::move(prompts)});
  }
  if (models.empty()) {
    return absl::NotFoundError(absl::StrCat("no models with golden.json below ", folder));
  }
  std::sort(models.begin(), models.end(),
            [](const ArchModel& a, const ArchModel& b) { return a.name < b.name; });
  return models;
}

std::string LinkArchModel(const ArchModel& model, const TempDirectory& temp) {
  const fs::path directory = fs::path(temp.path()) / model.name;
  fs::create_directories(directory);
  fs::create_symlink(model.config, directory / "config.json");
  for (const auto& entry : fs::directory_iterator(model.weights)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".safetensors") == std::string::npos) continue;
    fs::create_symlink(entry.path(), directory / name);
  }
  return directory.string();
}

}  // namespace baton::testing
