#include "text/chat_messages.h"

#include <string>
#include <string_view>
#include <utility>

namespace baton::text {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;
using CallContent = ChatTemplateTraits::CallContent;

constexpr std::string_view kReasoningKeys[] = {"reasoning_content", "reasoning", "thinking"};

// The text of a part; empty for one that has none.
std::string PartText(const Value& part) {
  if (part.is_string()) return part.str();
  const Value* text = part.is_dict() ? part.dict().Find("text") : nullptr;
  return text != nullptr && text->is_string() ? text->str() : std::string();
}

Value JoinParts(const Value& parts) {
  std::string joined;
  bool first = true;
  for (const Value& part : parts.items()) {
    if (!std::exchange(first, false)) joined += '\n';
    joined += PartText(part);
  }
  return Value::String(std::move(joined));
}

Value TextPart(const Value& text) {
  Dict part;
  part.Set("type", Value::String("text"));
  part.Set("text", text);
  return Value::MakeDict(std::move(part));
}

Value FitContent(const Value& content, const ChatTemplateTraits& traits) {
  if (content.is_string() && !traits.takes_text_content) {
    return Value::MakeList({TextPart(content)});
  }
  if (!content.is_list()) return content;
  if (!traits.takes_content_parts) return JoinParts(content);
  List parts;
  for (const Value& part : content.items()) {
    parts.push_back(part.is_string() ? TextPart(part) : part);
  }
  return Value::MakeList(std::move(parts));
}

// JSON text to the object it holds, or back; unchanged when that cannot be done.
Value FitArguments(const Value& arguments, bool as_text) {
  if (as_text && arguments.is_dict()) {
    absl::StatusOr<std::string> text = jinja::DumpJson(arguments);
    return text.ok() ? Value::String(*std::move(text)) : arguments;
  }
  if (as_text || !arguments.is_string()) return arguments;
  if (arguments.str().find_first_not_of(" \t\r\n") == std::string::npos) {
    return Value::MakeDict(Dict());  // a call without arguments
  }
  absl::StatusOr<Value> object = jinja::ParseJson(arguments.str());
  return object.ok() && object->is_dict() ? *std::move(object) : arguments;
}

Value FitCall(const Value& call, bool arguments_as_text) {
  const Value* function = call.is_dict() ? call.dict().Find("function") : nullptr;
  if (function == nullptr || !function->is_dict()) return call;
  const Value* arguments = function->dict().Find("arguments");
  if (arguments == nullptr) return call;
  Dict new_function = function->dict();
  new_function.Set("arguments", FitArguments(*arguments, arguments_as_text));
  Dict new_call = call.dict();
  new_call.Set("function", Value::MakeDict(std::move(new_function)));
  return Value::MakeDict(std::move(new_call));
}

Value FitCalls(const Value& calls, const ChatTemplateTraits& traits) {
  List fitted;
  for (const Value& call : calls.items()) {
    fitted.push_back(FitCall(call, traits.takes_call_arguments_as_text));
  }
  return Value::MakeList(std::move(fitted));
}

void CopyReasoning(Dict& message) {
  Value reasoning;
  for (const std::string_view key : kReasoningKeys) {
    const Value* value = message.Find(key);
    if (value != nullptr && reasoning.is_none()) reasoning = *value;
  }
  if (reasoning.is_none()) return;
  for (const std::string_view key : kReasoningKeys) {
    if (message.Find(key) == nullptr) message.Set(std::string(key), reasoning);
  }
}

// For a message that came without content.
void AddContent(bool has_calls, const ChatTemplateTraits& traits, Dict& message) {
  if (!has_calls || traits.call_content == CallContent::kEmpty) {
    message.Set("content", FitContent(Value::String(""), traits));
  } else if (traits.call_content == CallContent::kNone) {
    message.Set("content", Value::None());
  }
}

// Content that says nothing beside tool calls.
bool IsVoid(const Value& content) {
  if (content.is_string()) return content.str().empty();
  if (!content.is_list()) return false;
  for (const Value& part : content.items()) {
    if (!PartText(part).empty()) return false;
  }
  return true;
}

Value FitMessage(const Dict& message, const ChatTemplateTraits& traits) {
  const Value* calls = message.Find("tool_calls");
  const bool has_calls = calls != nullptr && calls->is_list() && !calls->items().empty();
  Dict out;
  for (const auto& [key, value] : message.items()) {
    if (value.is_none() || !key.is_string()) continue;
    const std::string& name = key.str();
    if (name == "content") {
      if (has_calls && traits.call_content != CallContent::kEmpty && IsVoid(value)) continue;
      out.Set(name, FitContent(value, traits));
    } else if (name == "tool_calls" && value.is_list()) {
      if (has_calls) out.Set(name, FitCalls(value, traits));
    } else if (name == "role" && value.is_string() && value.str() == "developer" &&
               !traits.knows_developer_role) {
      out.Set(name, Value::String("system"));
    } else {
      out.Set(name, value);
    }
  }
  if (out.Find("content") == nullptr) AddContent(has_calls, traits, out);
  CopyReasoning(out);
  return Value::MakeDict(std::move(out));
}

}  // namespace

Value FitMessages(const Value& messages, const ChatTemplateTraits& traits) {
  if (!messages.is_list()) return messages;
  List fitted;
  for (const Value& message : messages.items()) {
    fitted.push_back(message.is_dict() ? FitMessage(message.dict(), traits) : message);
  }
  return Value::MakeList(std::move(fitted));
}

}  // namespace baton::text
