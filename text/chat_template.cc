#include "text/chat_template.h"

#include <utility>

#include "common/status.h"
#include "text/jinja/program.h"

namespace baton::text {
namespace {

// Whether the text of a content part comes out, and not the part printed as a dict.
bool RendersParts(const ChatTemplate& chat_template) {
  jinja::Dict part;
  part.Set("type", jinja::Value::String("text"));
  part.Set("text", jinja::Value::String("<probe>"));
  jinja::Dict message;
  message.Set("role", jinja::Value::String("user"));
  message.Set("content", jinja::Value::MakeList({jinja::Value::MakeDict(std::move(part))}));
  ChatTemplateInput input;
  input.messages = jinja::Value::MakeList({jinja::Value::MakeDict(std::move(message))});
  const absl::StatusOr<std::string> prompt =
      chat_template.Render(input, RealClock(), absl::UTCTimeZone());
  return prompt.ok() && prompt->find("<probe>") != std::string::npos &&
         prompt->find("'<probe>'") == std::string::npos &&
         prompt->find("\"<probe>\"") == std::string::npos;
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const jinja::Program> program,
                           std::map<std::string, std::string> special_tokens)
    : program_(std::move(program)), special_tokens_(std::move(special_tokens)) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Compile(
    std::string_view source, const std::map<std::string, std::string>& special_tokens) {
  BATON_ASSIGN_OR_RETURN(auto program, jinja::Program::Compile(source));
  std::unique_ptr<ChatTemplate> made(new ChatTemplate(std::move(program), special_tokens));
  made->accepts_content_parts_ = RendersParts(*made);
  return made;
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatTemplateInput& input, const Clock& clock,
                                                 absl::TimeZone time_zone) const {
  std::map<std::string, jinja::Value> variables;
  for (const auto& [name, text] : special_tokens_) variables[name] = jinja::Value::String(text);
  for (const auto& [name, value] : input.extra) variables[name] = value;
  variables["messages"] = input.messages;
  variables["tools"] = input.tools;
  variables["documents"] = input.documents;
  variables["add_generation_prompt"] = jinja::Value::Bool(input.add_generation_prompt);
  return RenderWith(variables, clock, time_zone);
}

absl::StatusOr<std::string> ChatTemplate::RenderWith(
    const std::map<std::string, jinja::Value>& variables, const Clock& clock,
    absl::TimeZone time_zone) const {
  return program_->Run(variables, clock.Now(), time_zone);
}

}  // namespace baton::text
