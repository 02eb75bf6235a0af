#include "text/chat_template_traits.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace baton::text {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

// Texts that no template contains. Their spelling survives trimming and splitting.
constexpr std::string_view kQuestion = "Zq7question";
constexpr std::string_view kAnswer = "Zq7answer";
constexpr std::string_view kReply = "Zq7reply";
constexpr std::string_view kFunction = "zq7function";
constexpr std::string_view kArgument = "Zq7argument";
constexpr char kUnknownRole[] = "zq7role";

Value Text(std::string_view text) { return Value::String(std::string(text)); }

Value Message(std::string_view role, Value content) {
  Dict message;
  message.Set("role", Text(role));
  message.Set("content", std::move(content));
  return Value::MakeDict(std::move(message));
}

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Whether `text` was written as itself: not inside of a printed dict, nor as JSON within a string.
bool ShowsPlainly(const std::string& prompt, std::string_view text) {
  return Contains(prompt, text) && !Contains(prompt, absl::StrCat("'", std::string(text))) &&
         !Contains(prompt, absl::StrCat("\\\"", std::string(text)));
}

// A tool in OpenAI's form and in Cohere's at once.
Value ProbeTool() {
  Dict parameters;
  parameters.Set("type", Text("object"));
  parameters.Set("properties", Value::MakeDict(Dict()));
  Dict function;
  function.Set("name", Text("other"));
  function.Set("description", Text("other"));
  function.Set("parameters", Value::MakeDict(std::move(parameters)));
  Dict tool;
  tool.Set("type", Text("function"));
  tool.Set("function", Value::MakeDict(std::move(function)));
  tool.Set("name", Text("other"));
  tool.Set("description", Text("other"));
  tool.Set("parameter_definitions", Value::MakeDict(Dict()));
  return Value::MakeDict(std::move(tool));
}

class Prober {
 public:
  using Render = std::function<absl::StatusOr<std::string>(const ChatTemplateInput&)>;
  explicit Prober(const Render& render) : render_(render) {}

  ChatTemplateTraits Run() {
    ProbeContent();
    ProbeCalls();
    traits_.knows_developer_role = KnowsDeveloper();
    traits_.after_answer = AfterAnswer();
    return std::move(traits_);
  }

 private:
  // The prompt of a conversation, without more or with the tools and documents that some templates
  // cannot do without; empty if it cannot be rendered.
  std::string RenderChat(List messages, bool add_generation_prompt = false) const {
    if (hopeless_) return std::string();
    ChatTemplateInput input;
    input.messages = Value::MakeList(std::move(messages));
    input.add_generation_prompt = add_generation_prompt;
    absl::StatusOr<std::string> prompt = render_(input);
    if (!prompt.ok()) {
      input.tools = Value::MakeList({ProbeTool()});
      input.documents = Value::MakeList({});
      prompt = render_(input);
    }
    hopeless_ = prompt.status().code() == absl::StatusCode::kResourceExhausted;
    return prompt.ok() ? *std::move(prompt) : std::string();
  }

  Value Question() const {
    if (traits_.takes_text_content) return Message("user", Text(kQuestion));
    return Message("user", Parts(kQuestion));
  }
  static Value Parts(std::string_view text) {
    Dict part;
    part.Set("type", Text("text"));
    part.Set("text", Text(text));
    return Value::MakeList({Value::MakeDict(std::move(part))});
  }

  void ProbeContent() {
    const std::string parts = RenderChat({Message("user", Parts(kQuestion))}, true);
    traits_.takes_content_parts = ShowsPlainly(parts, kQuestion) &&
                                  !Contains(parts, absl::StrCat("\"", std::string(kQuestion)));
    traits_.takes_text_content =
        !traits_.takes_content_parts ||
        Contains(RenderChat({Message("user", Text(kQuestion))}, true), kQuestion);
  }

  // A conversation that ends with a tool call.
  std::string RenderCall(bool arguments_as_text, ChatTemplateTraits::CallContent content) const {
    Dict arguments;
    arguments.Set("key", Text(kArgument));
    Dict function;
    function.Set("name", Text(kFunction));
    function.Set("arguments",
                 arguments_as_text
                     ? Value::String(absl::StrCat("{\"key\": \"", std::string(kArgument), "\"}"))
                     : Value::MakeDict(std::move(arguments)));
    Dict call;
    call.Set("id", Text("zq7callid"));  // nine characters, which Mistral's templates insist on
    call.Set("type", Text("function"));
    call.Set("function", Value::MakeDict(std::move(function)));
    Dict message;
    message.Set("role", Text("assistant"));
    if (content == ChatTemplateTraits::CallContent::kEmpty) message.Set("content", Text(""));
    if (content == ChatTemplateTraits::CallContent::kNone) message.Set("content", Value::None());
    message.Set("tool_calls", Value::MakeList({Value::MakeDict(std::move(call))}));
    return RenderChat({Question(), Value::MakeDict(std::move(message))});
  }

  // Takes the first form of a call that is shown whole; else one that is shown, else one that does
  // not fail.
  void ProbeCalls() {
    int best = 0;
    for (const bool as_text : {false, true}) {
      for (const auto content :
           {ChatTemplateTraits::CallContent::kEmpty, ChatTemplateTraits::CallContent::kNone,
            ChatTemplateTraits::CallContent::kAbsent}) {
        const std::string prompt = RenderCall(as_text, content);
        const bool named = Contains(prompt, kFunction);
        const int score = prompt.empty()                     ? 0
                          : !named                           ? 1
                          : !Contains(prompt, kArgument)     ? 2
                          : !ShowsPlainly(prompt, kArgument) ? 3
                                                             : 4;
        if (score <= best) continue;
        best = score;
        traits_.takes_call_arguments_as_text = as_text;
        traits_.call_content = content;
      }
    }
  }

  // A template that puts any role into its header does not know this one.
  bool KnowsDeveloper() const {
    const auto render_as = [this](std::string_view role) {
      return RenderChat(
          {Message(role, traits_.takes_text_content ? Text(kReply) : Parts(kReply)), Question()});
    };
    const std::string developer = render_as("developer");
    return Contains(developer, kReply) &&
           developer != absl::StrReplaceAll(render_as(kUnknownRole), {{kUnknownRole, "developer"}});
  }

  std::string AfterAnswer() const {
    const Value answer =
        Message("assistant", traits_.takes_text_content ? Text(kAnswer) : Parts(kAnswer));
    const std::string last = RenderChat({Question(), answer});
    if (const auto tail = After(last, kAnswer); tail.has_value() && !IsBlank(*tail)) return *tail;
    // Some templates leave the last message open. What stands between an answer and the next
    // question then begins with the mark, unless the first question has the same before it.
    const Value question =
        Message("user", traits_.takes_text_content ? Text(kReply) : Parts(kReply));
    const std::string whole = RenderChat({Question(), answer, question});
    const std::string before_first = whole.substr(0, std::min(whole.find(kQuestion), whole.size()));
    std::string between = After(whole, kAnswer).value_or("");
    between.resize(std::min(between.find(kReply), between.size()));
    return before_first.ends_with(between) ? std::string() : between;
  }

  static std::optional<std::string> After(const std::string& prompt, std::string_view text) {
    const std::size_t at = prompt.rfind(text);
    if (at == std::string::npos) return std::nullopt;
    return prompt.substr(at + text.size());
  }
  static bool IsBlank(const std::string& text) {
    return text.find_first_not_of(" \t\r\n") == std::string::npos;
  }

  const Render& render_;
  mutable bool hopeless_ = false;  // a bound was hit: further probes would take as long for nothing
  ChatTemplateTraits traits_;
};

}  // namespace

ChatTemplateTraits ProbeChatTemplate(
    const std::function<absl::StatusOr<std::string>(const ChatTemplateInput&)>& render) {
  return Prober(render).Run();
}

}  // namespace baton::text
