#include "tests/unit/text/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>

#include "checkpoint/checkpoint.h"
#include "tests/support/test_paths.h"

namespace baton::text::testing {
namespace {

// The text assets of a model on disk; never freed. nullptr and a failed test when it cannot be
// read.
const checkpoint::TextAssets* ReadAssets(const std::string& path) {
  auto opened = checkpoint::Checkpoint::Open(path);
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? new checkpoint::TextAssets((*opened)->text_assets()) : nullptr;
}

const Tokenizer* MakeTokenizer(const checkpoint::TextAssets& assets) {
  auto made = Tokenizer::Create(assets);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? made->release() : nullptr;
}

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double SecondsToEncode(const Tokenizer& tokenizer, std::string_view unit, std::size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) text += unit;
  const double begin = CpuSeconds();
  const std::vector<std::int32_t> ids = tokenizer.Encode(text);
  const std::string decoded = tokenizer.Decode(ids, /*skip_special_tokens=*/false);
  const double seconds = CpuSeconds() - begin;
  EXPECT_FALSE(decoded.empty());
  return seconds;
}

void SkipForLackOfSmolLm2() { GTEST_SKIP() << "SmolLM2 is not here, and BATON_NO_DOWNLOAD is set"; }

}  // namespace

std::string GoldenPath(std::string_view name) {
  return baton::testing::GoldenDir() + "/" + std::string(name);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<Json> ReadGolden(std::string_view name) {
  std::vector<Json> lines;
  std::ifstream file(GoldenPath(name));
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(Json::parse(line));
  }
  EXPECT_FALSE(lines.empty()) << "no golden data in " << GoldenPath(name);
  return lines;
}

const checkpoint::TextAssets& TinyAssets() {
  static const checkpoint::TextAssets* assets =
      ReadAssets(baton::testing::ModelsDir() + "/tiny/target");
  return *assets;
}

const Tokenizer& TinyTokenizer() {
  static const Tokenizer* tokenizer = MakeTokenizer(TinyAssets());
  return *tokenizer;
}

const checkpoint::TextAssets* SmolLm2Assets() {
  const std::string path = baton::testing::SmolLm2Path();
  if (path.empty()) {
    if (baton::testing::FromEnvironment("BATON_NO_DOWNLOAD", "").empty()) {
      ADD_FAILURE() << "SmolLM2 is not here: set BATON_SMOLLM2 to its .gguf file, or "
                       "BATON_NO_DOWNLOAD=1 to skip what needs it";
    } else {
      SkipForLackOfSmolLm2();
    }
    return nullptr;
  }
  static const checkpoint::TextAssets* assets = ReadAssets(path);
  return assets;
}

const Tokenizer* SmolLm2Tokenizer() {
  const checkpoint::TextAssets* assets = SmolLm2Assets();
  if (assets == nullptr) return nullptr;
  static const Tokenizer* tokenizer = MakeTokenizer(*assets);
  return tokenizer;
}

double TimeOfFourfoldText(const Tokenizer& tokenizer, std::string_view unit) {
  constexpr std::size_t kSmall = std::size_t{1} << 16;
  double best = 1e9;
  for (int attempt = 0; attempt < 5 && best > 8; ++attempt) {
    const double small = SecondsToEncode(tokenizer, unit, kSmall);
    best = std::min(best, SecondsToEncode(tokenizer, unit, 4 * kSmall) / small);
  }
  return best;
}

std::string Describe(std::size_t line, std::string_view text) {
  return "line " + std::to_string(line + 1) + ": " + std::string(text.substr(0, 120));
}

}  // namespace baton::text::testing
