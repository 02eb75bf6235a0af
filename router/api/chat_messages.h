#pragma once
#include "absl/status/status.h"
#include "router/api/json_fields.h"
#include "text/chat_template_input.h"

namespace baton::router {

// Reads what a chat template needs from a chat request: messages, tools, tool_choice, documents,
// add_generation_prompt, continue_final_message, chat_template (a name), reasoning_effort,
// chat_template_kwargs. Checks the shapes of messages; of content parts only text is supported. The
// messages stay as the client sent them: text::ChatTemplateSet fits them to the template. Mistakes
// end up in `fields`.
void ReadChatInput(JsonFields& fields, text::ChatTemplateInput& input);

}  // namespace baton::router
