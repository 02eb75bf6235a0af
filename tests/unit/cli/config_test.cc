#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "cli/config/loader.h"

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

struct Inner {
  int block_size = 16;
  template <class Visitor>
  void VisitFields(Visitor&& field) {
    field(block_size, "block-size", {.unit = "tokens", .min = 1, .max = 256}, "Tokens per block.");
  }
};

struct Config {
  bool stream = false;
  std::int64_t memory = 0;
  double rate = 1.5;
  std::string dtype = "auto";
  absl::Duration lease = absl::Seconds(10);
  std::vector<std::string> routers;
  std::string key;
  Inner first, second;
  template <class Visitor>
  void VisitFields(Visitor&& field) {
    field(stream, "stream", {}, "Stream.");
    field(memory, "memory", {.unit = "bytes", .min = 0}, "Memory.");
    field(rate, "requests-per-second", {.alias = "rate"}, "Rate.");
    field(dtype, "dtype", {.choices = {"auto", "f32"}}, "Type.");
    field(lease, "lease", {.min = 0.1}, "Lease.");
    field(routers, "routers", {}, "Routers.");
    field(key, "api-key", {.secret = true}, "Key.");
    first.VisitFields(field);
    second.VisitFields(field);
  }
};

std::string WriteFile(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/config_test.yaml";
  std::ofstream(path) << text;
  return path;
}

TEST(ConfigTest, FlagsGoOverEnvironmentOverFile) {
  const std::string path = WriteFile("block-size: 8\nrate: 2\nlease: 5s\nrouters: [a:1, b:2]\n");
  setenv("BATON_REQUESTS_PER_SECOND", "3", 1);
  setenv("BATON_LEASE", "250ms", 1);
  Config config;
  auto settings = CollectSettings(config);

  const auto loaded =
      LoadSettings(settings, {"--config", path, "--lease=1m", "--stream", "--memory", "2GiB"});
  unsetenv("BATON_REQUESTS_PER_SECOND");
  unsetenv("BATON_LEASE");

  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(config.first.block_size, 8);
  EXPECT_EQ(config.second.block_size, 8);  // declared twice: both are set
  EXPECT_EQ(config.rate, 3);
  EXPECT_EQ(config.lease, absl::Minutes(1));
  EXPECT_TRUE(config.stream);
  EXPECT_EQ(config.memory, std::int64_t{2} << 30);
  EXPECT_THAT(config.routers, ::testing::ElementsAre("a:1", "b:2"));
}

TEST(ConfigTest, RefusesWhatIsWrongAndSaysWhere) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--block-sise", "4"}, "did you mean block-size?"},
      {{"--block-size", "0"}, "\"0\" is not in 1..256 tokens"},
      {{"--block-size", "many"}, "\"many\" is not an integer"},
      {{"--block-size"}, "needs a value"},
      {{"--dtype", "f64"}, "\"f64\" is not one of auto, f32"},
      {{"--lease", "soon"}, "is not a duration"},
      {{"--stream=maybe"}, "true or false"},
      {{"stray"}, "unexpected argument \"stray\""},
      {{"--config", "/nowhere.yaml"}, "/nowhere.yaml"},
      {{"--config", WriteFile("a: 1\n")}, "line 1: unknown key a"},
      {{"--memory", "99999999999999T"}, "is not an integer"},
  };
  for (const auto& [args, message] : cases) {
    Config config;
    auto settings = CollectSettings(config);
    const auto loaded = LoadSettings(settings, args);
    ASSERT_FALSE(loaded.ok()) << args[0];
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(message));
  }
}

TEST(ConfigTest, NeverShowsASecret) {
  Config config;
  config.key = "hunter2";
  const auto settings = CollectSettings(config);

  EXPECT_THAT(RedactedDump(settings), HasSubstr("api-key=***"));
  EXPECT_THAT(HelpText("usage", settings), ::testing::Not(HasSubstr("hunter2")));
}

TEST(ConfigTest, TakesAnAliasForTheNameAndReportsTheName) {
  Config config;
  auto settings = CollectSettings(config);
  const std::string path = WriteFile("rate: 2\n");

  auto loaded = LoadSettings(settings, {"--config", path});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(config.rate, 2);
  EXPECT_EQ(loaded->given.count("requests-per-second"), 1u);
  loaded = LoadSettings(settings, {"--rate=4"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(config.rate, 4);
  EXPECT_EQ(loaded->given.count("requests-per-second"), 1u);
  EXPECT_THAT(HelpText("usage", settings), HasSubstr("--requests-per-second, --rate <number>"));
  EXPECT_THAT(MarkdownTable(settings), HasSubstr("| `requests-per-second`, `rate` | number |"));
}

TEST(ConfigTest, HelpListsEverySetting) {
  Config config;
  const auto settings = CollectSettings(config);
  const std::string help = HelpText("usage: x", settings);

  for (const Setting& setting : settings) EXPECT_THAT(help, HasSubstr("--" + setting.name));
  EXPECT_THAT(help, HasSubstr("(default: 16)"));
}

}  // namespace
}  // namespace baton::cli
