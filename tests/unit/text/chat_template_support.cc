#include "tests/unit/text/chat_template_support.h"

#include <gtest/gtest.h>

#include <optional>

#include "absl/time/civil_time.h"
#include "checkpoint/huggingface_config.h"
#include "tests/unit/text/real_tokenizers.h"

namespace baton::text::testing {
namespace {

// tokenizer.json and tokenizer_config.json of a folder without a model.
std::optional<checkpoint::TextAssets> ReadTokenizerFolder(const std::string& folder) {
  checkpoint::TextAssets assets;
  assets.tokenizer_json = ReadFile(folder + "/tokenizer.json");
  const auto config = checkpoint::JsonObject::Parse(ReadFile(folder + "/tokenizer_config.json"));
  EXPECT_TRUE(config.ok()) << config.status();
  if (!config.ok()) return std::nullopt;
  const absl::Status status = checkpoint::AddTokenizerConfig(*config, assets);
  EXPECT_TRUE(status.ok()) << status;
  return assets;
}

std::optional<checkpoint::TextAssets> ReadAssets(const std::string& label, const Json& entry) {
  if (entry.contains("npm")) {
    const std::string npm = entry["npm"];
    const std::string folder = RealTokenizerFolder(npm.substr(npm.find("/tokenizer-") + 11));
    if (folder.empty()) return std::nullopt;
    return ReadTokenizerFolder(folder);
  }
  EXPECT_EQ(label, "smollm2") << "the index does not say where the template is";
  const checkpoint::TextAssets* assets = SmolLm2Assets();
  return assets == nullptr ? std::nullopt : std::optional(*assets);
}

// Read once for each model, since the files are large.
std::optional<checkpoint::TextAssets> AssetsOf(const std::string& label, const Json& entry) {
  static auto* known = new std::map<std::string, checkpoint::TextAssets>();
  const std::string model = entry.value("npm", label);
  const auto found = known->find(model);
  if (found != known->end()) return found->second;
  std::optional<checkpoint::TextAssets> assets = ReadAssets(label, entry);
  if (assets.has_value()) known->emplace(model, *assets);
  return assets;
}

}  // namespace

absl::Time GoldenMoment() {
  return absl::FromCivil(absl::CivilSecond(2025, 1, 15, 9, 30, 0), absl::UTCTimeZone());
}

jinja::Value ToValue(const Json& json) {
  auto value = jinja::ParseJson(json.dump());
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : jinja::Value();
}

ChatTemplateInput ToInput(const Json& line) {
  ChatTemplateInput input;
  input.messages = ToValue(line.at("messages"));
  input.tools = ToValue(line.value("tools", Json()));
  const Json kwargs = line.value("kwargs", Json::object());
  for (const auto& [name, value] : kwargs.items()) {
    if (name == "add_generation_prompt") {
      input.add_generation_prompt = value.get<bool>();
    } else if (name == "documents") {
      input.documents = ToValue(value);
    } else {
      input.extra[name] = ToValue(value);
    }
  }
  return input;
}

void ExpectOutcome(const absl::StatusOr<std::string>& rendered, const Json& expected) {
  if (expected.contains("rendered")) {
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(*rendered, expected["rendered"].get<std::string>());
    return;
  }
  ASSERT_FALSE(rendered.ok()) << *rendered;
  if (expected.at("error").at("kind") == "raise_exception") {
    EXPECT_EQ(rendered.status().message(), expected["error"]["message"].get<std::string>());
  }
}

std::vector<GoldenTemplate> GoldenTemplates(const std::string& only) {
  std::vector<GoldenTemplate> templates;
  const Json index = Json::parse(ReadFile(GoldenPath("chat_templates/index.json")));
  for (const auto& [label, entry] : index.at("templates").items()) {
    if (!only.empty() && label != only) continue;
    SCOPED_TRACE(label);
    std::optional<checkpoint::TextAssets> assets = AssetsOf(label, entry);
    if (!assets.has_value()) continue;
    GoldenTemplate made;
    made.label = label;
    const std::size_t colon = label.find(':');
    made.name = colon == std::string::npos ? "default" : label.substr(colon + 1);
    made.source = made.name == "default" ? assets->chat_template.value_or("")
                                         : assets->named_chat_templates[made.name];
    EXPECT_FALSE(made.source.empty()) << "no such template in the model's files";
    made.special_tokens = entry.at("special_tokens").get<std::map<std::string, std::string>>();
    made.lines = ReadGolden("chat_templates/" + entry.at("jsonl").get<std::string>());
    made.num_cases = entry.at("cases").get<std::size_t>();
    made.assets = *std::move(assets);
    templates.push_back(std::move(made));
  }
  return templates;
}

}  // namespace baton::text::testing
