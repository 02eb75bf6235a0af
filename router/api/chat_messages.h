#pragma once
#include "absl/status/status.h"
#include "router/api/json_fields.h"
#include "text/chat_template.h"

namespace baton::router {

// Reads what a chat template needs from a chat request: messages, tools, documents,
// add_generation_prompt, chat_template_kwargs. Checks roles and content parts; only text parts are
// supported. Mistakes end up in `fields`.
void ReadChatInput(JsonFields& fields, text::ChatTemplateInput& input);

// Joins content that is a list of text parts to one string, by line ends as vLLM does, for
// templates that take only strings.
text::jinja::Value JoinContentParts(const text::jinja::Value& messages);

}  // namespace baton::router
