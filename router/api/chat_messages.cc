#include "router/api/chat_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

using text::jinja::Dict;
using text::jinja::List;
using text::jinja::Value;

// Template variables that have fields of their own.
constexpr std::string_view kOwnFields[] = {
    "messages",     "tools", "documents", "add_generation_prompt", "continue_final_message",
    "chat_template"};

bool CheckContent(JsonFields& message, const Value& content) {
  if (content.is_string()) return true;
  if (!content.is_list()) return message.FailType("content", "a string or an array", content);
  for (std::size_t i = 0; i < content.items().size(); ++i) {
    const std::string name = absl::StrCat("content[", i, "]");
    const Value& part = content.items()[i];
    if (part.is_string()) continue;
    if (!part.is_dict()) return message.FailType(name, "an object", part);
    const Value* type = part.dict().Find("type");
    if (type == nullptr || !type->is_string()) {
      return message.Fail(name + ".type", "invalid_type", "expected a string");
    }
    if (type->str() != "text") {
      return message.Fail(name + ".type", "invalid_value",
                          "content of type '" + type->str() + "' is not supported, only 'text'");
    }
    const Value* text = part.dict().Find("text");
    if (text == nullptr || !text->is_string()) {
      return message.Fail(name + ".text", "invalid_type", "expected a string");
    }
  }
  return true;
}

// An array of objects; more is the template's business.
bool CheckObjects(JsonFields& fields, std::string_view name) {
  const List* list = fields.Array(name);
  if (list == nullptr) return false;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Value& item = (*list)[i];
    if (!item.is_dict()) {
      return fields.FailType(absl::StrCat(std::string(name), "[", i, "]"), "an object", item);
    }
  }
  return !list->empty();
}

void CheckMessage(JsonFields& message) {
  std::string role;
  if (!message.String("role", role) && message.status().ok()) {
    message.Fail("role", "missing_required_parameter", "required");
  }
  if (const Value* content = message.Find("content")) CheckContent(message, *content);
  CheckObjects(message, "tool_calls");
}

void ReadMessages(JsonFields& fields, text::ChatTemplateInput& input) {
  const List* messages = fields.Array("messages");
  if (messages == nullptr) {
    fields.Fail("messages", "missing_required_parameter", "required");
    return;
  }
  if (messages->empty()) {
    fields.Fail("messages", "invalid_value", "expected at least one message");
    return;
  }
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string path = absl::StrCat("messages[", i, "]");
    if (!(*messages)[i].is_dict()) {
      fields.FailType(path, "an object", (*messages)[i]);
      return;
    }
    JsonFields message((*messages)[i].dict(), path);
    CheckMessage(message);
    if (!message.status().ok()) {
      fields.Adopt(message.status());
      return;
    }
  }
  input.messages = *fields.Find("messages");
}

// Whether the model may be shown the tools. What would force or forbid a call is refused: the
// output is not constrained, so it could not be kept.
bool ReadToolChoice(JsonFields& fields) {
  const Value* choice = fields.Find("tool_choice");
  if (choice == nullptr) return true;
  if (choice->is_string()) {
    if (choice->str() == "none") return false;
    if (choice->str() == "auto") return true;
    fields.Fail("tool_choice", "unsupported_value",
                "'" + choice->str() + "' is not supported, only 'auto' and 'none'");
  } else if (choice->is_dict()) {
    fields.Fail("tool_choice", "unsupported_value",
                "choosing a function is not supported, only 'auto' and 'none'");
  } else {
    fields.FailType("tool_choice", "a string", *choice);
  }
  return true;
}

void ReadTools(JsonFields& fields, text::ChatTemplateInput& input) {
  const bool shown = ReadToolChoice(fields);
  if (CheckObjects(fields, "tools") && shown) input.tools = *fields.Find("tools");
}

void ReadVariables(JsonFields& fields, text::ChatTemplateInput& input) {
  std::string effort;
  if (fields.String("reasoning_effort", effort)) {
    input.extra["reasoning_effort"] = Value::String(effort);
  }
  const Dict* extra = fields.Object("chat_template_kwargs");
  if (extra == nullptr) return;
  for (const auto& [key, value] : extra->items()) {
    if (!key.is_string()) continue;
    const std::string& name = key.str();
    if (std::find(std::begin(kOwnFields), std::end(kOwnFields), name) != std::end(kOwnFields)) {
      fields.Fail("chat_template_kwargs." + name, "invalid_value",
                  "not a template variable of yours; set the request's field '" + name + "'");
      return;
    }
    input.extra[name] = value;
  }
}

}  // namespace

void ReadChatInput(JsonFields& fields, text::ChatTemplateInput& input) {
  ReadMessages(fields, input);
  ReadTools(fields, input);
  if (CheckObjects(fields, "documents")) input.documents = *fields.Find("documents");
  const bool prompt_given = fields.Bool("add_generation_prompt", input.add_generation_prompt);
  fields.Bool("continue_final_message", input.continue_final_message);
  if (input.continue_final_message && prompt_given && input.add_generation_prompt) {
    fields.Fail("continue_final_message", "invalid_value",
                "cannot be true together with add_generation_prompt");
  }
  fields.String("chat_template", input.template_name);
  if (input.template_name.find('{') != std::string::npos) {
    fields.Fail("chat_template", "invalid_value",
                "expected the name of one of the model's templates; requests cannot bring their "
                "own, see --chat-template");
  }
  ReadVariables(fields, input);
}

}  // namespace baton::router
