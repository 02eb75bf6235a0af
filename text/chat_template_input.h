#pragma once
#include <map>
#include <string>

#include "text/jinja/value.h"

namespace baton::text {

// What a chat request gives to the template. The values keep the order of keys and the difference
// between 1 and 1.0: parse them from the request's JSON text with jinja::ParseJson.
struct ChatTemplateInput {
  jinja::Value messages;   // a list of dicts
  jinja::Value tools;      // a list; default: none
  jinja::Value documents;  // a list; default: none
  bool add_generation_prompt = true;
  // The last message is a beginning that the model is to go on with: the prompt ends with its text,
  // whatever add_generation_prompt says. See ChatTemplateSet.
  bool continue_final_message = false;
  std::string template_name;  // of a model with several templates; empty: chosen by `tools`
  std::map<std::string, jinja::Value> extra;  // chat_template_kwargs; they win over special tokens
};

}  // namespace baton::text
