#include <gtest/gtest.h>

#include <filesystem>

#include "tests/fuzz/text_inputs.h"
#include "tests/unit/text/support.h"

namespace baton::text {
namespace {

template <class Callback>
void ForEachInput(std::string_view folder, Callback run) {
  int count = 0;
  const std::string path =
      std::string(BATON_SOURCE_DIR "/tests/fuzz/regressions/") + std::string(folder);
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    SCOPED_TRACE(entry.path().string());
    run(testing::ReadFile(entry.path().string()));
    ++count;
  }
  EXPECT_GT(count, 0) << path;
}

// What the fuzzers once found must neither crash nor hang again; their checks abort.
TEST(TextFuzzRegressionTest, SurvivesTheTemplatesFoundByFuzzing) {
  ForEachInput("jinja", [](const std::string& input) { RunJinjaInput(input); });
}

TEST(TextFuzzRegressionTest, SurvivesTheTokenizersFoundByFuzzing) {
  ForEachInput("tokenizer_json", [](const std::string& input) { RunTokenizerJsonInput(input); });
}

}  // namespace
}  // namespace baton::text
