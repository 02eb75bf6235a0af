#include "text/chat_template.h"

#include <utility>

#include "common/status.h"
#include "text/jinja/program.h"

namespace baton::text {
namespace {

// For the probes at Compile: two dozen runs over three messages at most.
constexpr jinja::Limits kProbeLimits = {.max_steps = 200'000,
                                        .max_memory_bytes = std::size_t{64} << 20,
                                        .max_output_bytes = std::size_t{1} << 20};

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const jinja::Program> program,
                           std::map<std::string, std::string> special_tokens)
    : program_(std::move(program)), special_tokens_(std::move(special_tokens)) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Compile(
    std::string_view source, const std::map<std::string, std::string>& special_tokens) {
  BATON_ASSIGN_OR_RETURN(auto program, jinja::Program::Compile(source));
  std::unique_ptr<ChatTemplate> made(new ChatTemplate(std::move(program), special_tokens));
  made->traits_ = ProbeChatTemplate([&made](const ChatTemplateInput& input) {
    return made->Render(input, RealClock(), absl::UTCTimeZone(), kProbeLimits);
  });
  return made;
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatTemplateInput& input, const Clock& clock,
                                                 absl::TimeZone time_zone,
                                                 const jinja::Limits& limits) const {
  std::map<std::string, jinja::Value> variables;
  for (const auto& [name, text] : special_tokens_) variables[name] = jinja::Value::String(text);
  for (const auto& [name, value] : input.extra) variables[name] = value;
  variables["messages"] = input.messages;
  variables["tools"] = input.tools;
  variables["documents"] = input.documents;
  variables["add_generation_prompt"] = jinja::Value::Bool(input.add_generation_prompt);
  return RenderWith(variables, clock, time_zone, limits);
}

absl::StatusOr<std::string> ChatTemplate::RenderWith(
    const std::map<std::string, jinja::Value>& variables, const Clock& clock,
    absl::TimeZone time_zone, const jinja::Limits& limits) const {
  return program_->Run(variables, clock.Now(), time_zone, limits);
}

}  // namespace baton::text
