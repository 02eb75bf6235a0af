#pragma once
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/text_assets.h"
#include "tests/unit/text/support.h"
#include "text/chat_template_input.h"

namespace baton::text::testing {

// The moment of the golden data, 2025-01-15T09:30:00 without a zone.
absl::Time GoldenMoment();

// Fails the test if `json` has what values cannot hold.
jinja::Value ToValue(const Json& json);

// A golden conversation: `line` has messages, tools and kwargs.
ChatTemplateInput ToInput(const Json& line);

// `expected` has "rendered" or "error", as the golden README says.
void ExpectOutcome(const absl::StatusOr<std::string>& rendered, const Json& expected);

// One template of the golden index with its conversations, and the model's text assets: of a real
// tokenizer its tokenizer.json and all its templates.
struct GoldenTemplate {
  std::string label;  // "command_r_plus:tool_use"
  std::string name;   // "tool_use", "default"
  std::string source;
  std::map<std::string, std::string> special_tokens;  // as the references were given
  std::vector<Json> lines;
  std::size_t num_cases = 0;  // as the index says
  checkpoint::TextAssets assets;
};

// Every template of the index. Those that cannot be had are missing: the test has then failed,
// saying why, or was skipped if $BATON_NO_DOWNLOAD is set. `label`: only that one.
std::vector<GoldenTemplate> GoldenTemplates(const std::string& label = "");

}  // namespace baton::text::testing
