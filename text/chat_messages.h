#pragma once
#include "text/chat_template_traits.h"
#include "text/jinja/value.h"

namespace baton::text {

// Rewrites a conversation as clients send it to the form that a template with `traits` can deal
// with, and leaves alone what it takes as it is:
//  - keys whose value is null are dropped, an empty tool_calls too, as absent ones;
//  reasoning_content,
//    reasoning and thinking are the same under three names, so each gets the text of the one given
//    (both as transformers 5 does);
//  - content is there, if only as an empty string, except that messages with tool calls get what
//  the
//    template wants there;
//  - content of text parts is joined by line ends, as vLLM does, for templates that take only
//    strings, and a string becomes one part for templates that take only parts;
//  - the arguments of tool calls become objects if they are JSON text, or JSON text if they are
//    objects. Text that is no JSON object (models do write such) stays;
//  - the role "developer" becomes "system" where the template does not know it.
// `messages` is a list of dicts with a string under "role", and content that is a string, null or a
// list of strings and text parts; anything else is left as it is.
jinja::Value FitMessages(const jinja::Value& messages, const ChatTemplateTraits& traits);

}  // namespace baton::text
