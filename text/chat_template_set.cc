#include "text/chat_template_set.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/chat_messages.h"

namespace baton::text {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

constexpr char kDefault[] = "default";
constexpr char kToolUse[] = "tool_use";

// Marks the end of the text to be continued. Spelled as in transformers, since some templates look
// for it. Its last character shows whether the template trims contents.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

absl::Status NothingToContinue(std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("continue_final_message: ", std::string(why),
                   "; end the messages with one of the assistant that has text content"));
}

// The content with the tag after its text. nullopt when there is no text.
std::optional<Value> WithTag(const Value& content) {
  if (content.is_string()) return Value::String(content.str() + std::string(kContinueTag));
  if (!content.is_list() || content.items().empty()) return std::nullopt;
  List parts = content.items();
  const Value* text = parts.back().is_dict() ? parts.back().dict().Find("text") : nullptr;
  if (text == nullptr || !text->is_string()) return std::nullopt;
  Dict part = parts.back().dict();
  part.Set("text", Value::String(text->str() + std::string(kContinueTag)));
  parts.back() = Value::MakeDict(std::move(part));
  return Value::MakeList(std::move(parts));
}

absl::Status TagLastMessage(Value& messages) {
  if (!messages.is_list() || messages.items().empty()) return NothingToContinue("no messages");
  List tagged = messages.items();
  if (!tagged.back().is_dict()) return NothingToContinue("the last message is no object");
  Dict last = tagged.back().dict();
  const Value* role = last.Find("role");
  if (role == nullptr || !role->is_string() || role->str() != "assistant") {
    return NothingToContinue("the last message is not the assistant's");
  }
  const Value* content = last.Find("content");
  std::optional<Value> with_tag = content == nullptr ? std::nullopt : WithTag(*content);
  if (!with_tag.has_value()) return NothingToContinue("the last message has no text");
  last.Set("content", *std::move(with_tag));
  tagged.back() = Value::MakeDict(std::move(last));
  messages = Value::MakeList(std::move(tagged));
  return absl::OkStatus();
}

absl::StatusOr<std::string> CutAtTag(std::string prompt) {
  const std::size_t at = prompt.rfind(kContinueTag.substr(0, kContinueTag.size() - 1));
  if (at == std::string::npos) {
    return NothingToContinue("the template leaves out the text of the last message");
  }
  const bool trimmed = prompt.compare(at, kContinueTag.size(), kContinueTag) != 0;
  prompt.resize(at);
  if (trimmed) absl::StripTrailingAsciiWhitespace(&prompt);
  return prompt;
}

bool LooksLikeMark(std::string_view token) {
  return token.size() > 2 && token.front() == '<' && token.back() == '>';
}

}  // namespace

absl::StatusOr<std::unique_ptr<const ChatTemplateSet>> ChatTemplateSet::Create(
    const checkpoint::TextAssets& assets) {
  std::map<std::string, std::string> sources = assets.named_chat_templates;
  if (assets.chat_template.has_value()) sources[kDefault] = *assets.chat_template;
  if (sources.empty()) return nullptr;
  std::unique_ptr<ChatTemplateSet> set(new ChatTemplateSet());
  for (const auto& [name, source] : sources) {
    auto compiled = ChatTemplate::Compile(source, assets.special_tokens);
    if (!compiled.ok()) {
      return sources.size() == 1
                 ? compiled.status()
                 : Annotate(compiled.status(), absl::StrCat("template '", name, "'"));
    }
    set->templates_.emplace(name, *std::move(compiled));
  }
  return set;
}

absl::StatusOr<const ChatTemplate*> ChatTemplateSet::Select(const ChatTemplateInput& input) const {
  std::string name = input.template_name;
  if (name.empty()) {
    name = !input.tools.is_none() && templates_.count(kToolUse) > 0 ? kToolUse : kDefault;
  }
  const auto found = templates_.find(name);
  if (found != templates_.end()) return found->second.get();
  std::string names;
  for (const auto& [known, unused] : templates_) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", known);
  }
  return absl::NotFoundError(absl::StrCat("the model has no chat template of this name: '",
                                          name.substr(0, 100), "'; it has: ", names));
}

absl::StatusOr<std::string> ChatTemplateSet::Render(const ChatTemplateInput& input,
                                                    const Clock& clock,
                                                    absl::TimeZone time_zone) const {
  BATON_ASSIGN_OR_RETURN(const ChatTemplate* const chosen, Select(input));
  ChatTemplateInput fitted = input;
  fitted.messages = FitMessages(input.messages, chosen->traits());
  if (!input.continue_final_message) return chosen->Render(fitted, clock, time_zone);
  fitted.add_generation_prompt = false;
  BATON_RETURN_IF_ERROR(TagLastMessage(fitted.messages));
  BATON_ASSIGN_OR_RETURN(std::string prompt, chosen->Render(fitted, clock, time_zone));
  return CutAtTag(std::move(prompt));
}

std::vector<std::int32_t> ChatTemplateSet::EndIds(const Tokenizer& tokenizer) const {
  std::vector<std::int32_t> ids;
  for (const auto& [name, chat_template] : templates_) {
    const absl::string_view tail =
        absl::StripLeadingAsciiWhitespace(chat_template->traits().after_answer);
    const std::vector<std::int32_t> tokens =
        tokenizer.Encode(std::string_view(tail.data(), tail.size()));
    if (tokens.empty()) continue;
    const std::string_view first = tokenizer.TokenBytes(tokens.front());
    // Some vocabularies do not call their marks special.
    const bool is_mark = tokenizer.IsSpecial(tokens.front()) || LooksLikeMark(first);
    if (is_mark && !first.empty() &&
        tail.substr(0, first.size()) == absl::string_view(first.data(), first.size())) {
      ids.push_back(tokens.front());
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace baton::text
