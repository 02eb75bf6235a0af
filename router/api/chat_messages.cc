#include "router/api/chat_messages.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

using text::jinja::Dict;
using text::jinja::List;
using text::jinja::Value;

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

// A call's arguments come as JSON text; templates expect the object.
Value ParseCallArguments(const Value& calls) {
  List parsed;
  for (const Value& call : calls.items()) {
    const Value* function = call.is_dict() ? call.dict().Find("function") : nullptr;
    const Value* arguments =
        function != nullptr && function->is_dict() ? function->dict().Find("arguments") : nullptr;
    if (arguments == nullptr || !arguments->is_string()) {
      parsed.push_back(call);
      continue;
    }
    const absl::StatusOr<Value> object = text::jinja::ParseJson(arguments->str());
    Dict new_function = function->dict();
    if (object.ok() && object->is_dict()) new_function.Set("arguments", *object);
    Dict new_call = call.dict();
    new_call.Set("function", Value::MakeDict(std::move(new_function)));
    parsed.push_back(Value::MakeDict(std::move(new_call)));
  }
  return Value::MakeList(std::move(parsed));
}

// The message as templates see it: content is always there, call arguments are objects.
Value Normalize(const Dict& message) {
  Dict out = message;
  const Value* content = message.Find("content");
  if (content == nullptr || content->is_none()) out.Set("content", Value::String(""));
  const Value* calls = message.Find("tool_calls");
  if (calls != nullptr && calls->is_list()) out.Set("tool_calls", ParseCallArguments(*calls));
  return Value::MakeDict(std::move(out));
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
  List checked;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string path = absl::StrCat("messages[", i, "]");
    if (!(*messages)[i].is_dict()) {
      fields.FailType(path, "an object", (*messages)[i]);
      return;
    }
    JsonFields message((*messages)[i].dict(), path);
    std::string role;
    if (!message.String("role", role) && message.status().ok()) {
      message.Fail("role", "missing_required_parameter", "required");
    }
    if (const Value* content = message.Find("content")) CheckContent(message, *content);
    if (!message.status().ok()) {
      fields.Adopt(message.status());
      return;
    }
    checked.push_back(Normalize((*messages)[i].dict()));
  }
  input.messages = Value::MakeList(std::move(checked));
}

}  // namespace

void ReadChatInput(JsonFields& fields, text::ChatTemplateInput& input) {
  ReadMessages(fields, input);
  const Value* choice = fields.Find("tool_choice");
  const bool no_tools = choice != nullptr && choice->is_string() && choice->str() == "none";
  if (fields.Array("tools") != nullptr && !no_tools && !fields.Array("tools")->empty()) {
    input.tools = *fields.Find("tools");
  }
  if (choice != nullptr) input.extra["tool_choice"] = *choice;
  if (fields.Array("documents") != nullptr) input.documents = *fields.Find("documents");
  fields.Bool("add_generation_prompt", input.add_generation_prompt);
  if (const Dict* extra = fields.Object("chat_template_kwargs")) {
    for (const auto& [key, value] : extra->items()) {
      if (key.is_string()) input.extra[key.str()] = value;
    }
  }
}

Value JoinContentParts(const Value& messages) {
  List joined;
  for (const Value& message : messages.items()) {
    const Value* content = message.dict().Find("content");
    if (content == nullptr || !content->is_list()) {
      joined.push_back(message);
      continue;
    }
    std::string text;
    for (const Value& part : content->items()) {
      if (!text.empty()) text += '\n';
      text += part.is_string() ? part.str() : part.dict().Find("text")->str();
    }
    Dict out = message.dict();
    out.Set("content", Value::String(std::move(text)));
    joined.push_back(Value::MakeDict(std::move(out)));
  }
  return Value::MakeList(std::move(joined));
}

}  // namespace baton::router
