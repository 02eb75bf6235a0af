#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace baton {
namespace {

namespace fs = std::filesystem;

// folder -> the folders it may include besides itself, read from the table in ARCHITECTURE.md that
// begins with "| folder |".
std::map<std::string, std::set<std::string>> ReadAllowedDirections() {
  std::ifstream file(BATON_SOURCE_DIR "/ARCHITECTURE.md");
  std::map<std::string, std::set<std::string>> allowed;
  bool in_table = false;
  const std::regex name("[a-z_]+");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| folder |", 0) == 0) {
      in_table = true;
    } else if (in_table && line.rfind("|", 0) != 0) {
      break;
    } else if (in_table && line.rfind("|-", 0) != 0) {
      const size_t second = line.find('|', 1), third = line.find('|', second + 1);
      const std::string folders = line.substr(1, second - 1), includes = line.substr(third + 1);
      std::set<std::string> targets;
      for (std::sregex_iterator it(includes.begin(), includes.end(), name), end; it != end; ++it) {
        targets.insert(it->str());
      }
      for (std::sregex_iterator it(folders.begin(), folders.end(), name), end; it != end; ++it) {
        allowed[it->str()] = targets;
      }
    }
  }
  return allowed;
}

bool IsSource(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".h" || extension == ".cc" || extension == ".cu" || extension == ".cuh";
}

TEST(IncludeDirectionsTest, EveryIncludeFollowsTheTable) {
  const auto allowed = ReadAllowedDirections();
  ASSERT_GE(allowed.size(), 12u) << "the folder table of ARCHITECTURE.md was not found";
  const std::regex include("^#include \"([a-z_]+)/[^\"]+\"");
  int checked = 0;
  for (const auto& [folder, targets] : allowed) {
    const fs::path root = fs::path(BATON_SOURCE_DIR) / folder;
    if (!fs::exists(root) || targets.contains("all")) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (!IsSource(entry.path())) continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (!std::regex_search(line, match, include) || !allowed.contains(match[1])) continue;
        ++checked;
        EXPECT_TRUE(match[1] == folder || targets.contains(match[1]))
            << entry.path().string() << " includes " << match[1] << "/, which the table in "
            << "ARCHITECTURE.md does not allow for " << folder << "/";
      }
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(IncludeDirectionsTest, EveryFolderWithSourcesStandsInTheTable) {
  const auto allowed = ReadAllowedDirections();
  for (const auto& entry : fs::directory_iterator(BATON_SOURCE_DIR)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || name.front() == '.' || name == "build") continue;
    for (const auto& inner : fs::recursive_directory_iterator(entry.path())) {
      if (!IsSource(inner.path())) continue;
      EXPECT_TRUE(allowed.contains(name)) << name << "/ has sources but no row in ARCHITECTURE.md";
      break;
    }
  }
}

}  // namespace
}  // namespace baton
