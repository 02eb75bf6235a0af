#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "text/chat_template_input.h"

namespace baton::text {

// Which forms of a message a template can deal with. Clients send the forms of OpenAI's interface;
// templates were written for one or the other. FitMessages (chat_messages.h) makes one fit the
// other.
struct ChatTemplateTraits {
  // Content that is a list of parts ({"type": "text", "text": ...}) is looked into.
  bool takes_content_parts = false;
  // Content that is a string comes out.
  bool takes_text_content = true;
  // What the content of a message must be that has tool calls and says nothing else.
  enum class CallContent : std::uint8_t { kEmpty, kNone, kAbsent };
  CallContent call_content = CallContent::kEmpty;
  // The arguments of a tool call must be JSON text, not an object.
  bool takes_call_arguments_as_text = false;
  // The role "developer" is not treated like any unknown role.
  bool knows_developer_role = false;
  // What follows the text of the assistant's message: begins, but for spaces and line ends, with
  // the template's mark for the end of an answer, if it has one. May be empty.
  std::string after_answer;
};

// Finds the traits by rendering small conversations with `render`, some of which will fail.
ChatTemplateTraits ProbeChatTemplate(
    const std::function<absl::StatusOr<std::string>(const ChatTemplateInput&)>& render);

}  // namespace baton::text
