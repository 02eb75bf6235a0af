#include "cli/model_locator.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultModelFile[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

fs::path CacheFolder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "baton" / "models";
  }
  const char* const home = std::getenv("HOME");
  return fs::path(home == nullptr ? "/root" : home) / ".cache" / "baton" / "models";
}

}  // namespace

absl::StatusOr<std::string> FindDefaultModel() {
  std::vector<fs::path> places = {CacheFolder() / kDefaultModelFile};
  std::error_code error;
  // An installed tree has share/baton beside bin; a build tree lies in build/PRESET/cli.
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path folder = executable.parent_path();
    places.push_back(folder / "../share/baton/models/tiny/target");
    places.push_back(folder / "../../../models/tiny/target");
  }
  for (const fs::path& place : places) {
    if (fs::exists(place, error)) return fs::weakly_canonical(place).string();
  }
  return absl::NotFoundError(absl::StrCat(
      "no model given and no default model found in ",
      absl::StrJoin(places, ", ",
                    [](std::string* out, const fs::path& place) { out->append(place.string()); }),
      "; give --model PATH or run quickstart.sh once"));
}

std::string ModelNameFromPath(const std::string& path) {
  fs::path trimmed = fs::path(path).lexically_normal();
  if (!trimmed.has_filename()) trimmed = trimmed.parent_path();
  std::string name = trimmed.filename().string();
  for (const char* suffix : {".gguf", ".Q4_1", ".Q4_0", ".Q8_0", ".Q4_K_M", ".F16", ".BF16"}) {
    const std::string_view ending = suffix;
    if (name.size() > ending.size() && name.ends_with(ending)) {
      name.erase(name.size() - ending.size());
    }
  }
  return name;
}

}  // namespace baton::cli
