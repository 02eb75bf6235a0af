#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/text_assets.h"
#include "common/clock.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton::text {

// The chat templates of a model: "default", and for some models others by name. Turns a chat
// request as clients send it into the prompt. Immutable and thread-safe.
class ChatTemplateSet {
 public:
  // The templates that `assets` has; nullptr when it has none. Errors as ChatTemplate::Compile, and
  // the message names the template when there are several.
  static absl::StatusOr<std::unique_ptr<const ChatTemplateSet>> Create(
      const checkpoint::TextAssets& assets);

  // The template that `input` asks for by name. Without a name, as transformers does, "tool_use" if
  // there are tools and such a template, else "default".
  //   kNotFound  the model has no such template; names those it has
  absl::StatusOr<const ChatTemplate*> Select(const ChatTemplateInput& input) const;

  // Fits the messages to the template (chat_messages.h) and renders them. With
  // continue_final_message the prompt ends with the text of the last message, which must be one of
  // the assistant with text content; should the template trim contents, then so is the end of this
  // text (transformers does the same). Errors as Select and ChatTemplate::Render;
  // kInvalidArgument when there is nothing to continue.
  absl::StatusOr<std::string> Render(const ChatTemplateInput& input, const Clock& clock,
                                     absl::TimeZone time_zone = absl::LocalTimeZone()) const;

  // The special tokens that templates put after an answer, ascending: the model ends its output
  // with one of them, whatever its configuration says. Those that are no single token of
  // `tokenizer` are not found.
  std::vector<std::int32_t> EndIds(const Tokenizer& tokenizer) const;

  // By name, in the order of names.
  const std::map<std::string, std::unique_ptr<const ChatTemplate>, std::less<>>& templates() const {
    return templates_;
  }

 private:
  ChatTemplateSet() = default;
  std::map<std::string, std::unique_ptr<const ChatTemplate>, std::less<>> templates_;
};

}  // namespace baton::text
