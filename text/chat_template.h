#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "text/chat_template_input.h"
#include "text/chat_template_traits.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace baton::text {

namespace jinja {
class Program;
}

// One chat template, compiled once and run for every chat request, in the environment that Hugging
// Face's transformers gives it. Immutable and thread-safe after Compile. A run is bounded in steps,
// memory, output and depth (jinja/limits.h) and can reach nothing outside its inputs. Servers go
// through ChatTemplateSet, which chooses among a model's templates and fits the messages to them.
class ChatTemplate {
 public:
  // Compiles `source`. `special_tokens`: "bos_token" -> text and so on, seen as variables.
  //   kInvalidArgument     a syntax error; the message begins with "line L, column C: "
  //   kFailedPrecondition  a tag, filter, test or function that does not exist here; likewise
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Compile(
      std::string_view source, const std::map<std::string, std::string>& special_tokens);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // Renders the prompt of the messages just as they are. `clock` and `time_zone` serve
  // strftime_now().
  //   kInvalidArgument    the template refused the input by raise_exception (the message is exactly
  //                       the template's) or failed on it ("chat template, line L: ...")
  //   kResourceExhausted  a bound was hit
  absl::StatusOr<std::string> Render(const ChatTemplateInput& input, const Clock& clock,
                                     absl::TimeZone time_zone = absl::LocalTimeZone(),
                                     const jinja::Limits& limits = {}) const;

  // Renders with exactly the given variables and no others; for tests and tools.
  absl::StatusOr<std::string> RenderWith(const std::map<std::string, jinja::Value>& variables,
                                         const Clock& clock,
                                         absl::TimeZone time_zone = absl::LocalTimeZone(),
                                         const jinja::Limits& limits = {}) const;

  // Found out at Compile by rendering small conversations.
  const ChatTemplateTraits& traits() const { return traits_; }

 private:
  ChatTemplate(std::unique_ptr<const jinja::Program> program,
               std::map<std::string, std::string> special_tokens);

  const std::unique_ptr<const jinja::Program> program_;
  const std::map<std::string, std::string> special_tokens_;
  ChatTemplateTraits traits_;
};

}  // namespace baton::text
