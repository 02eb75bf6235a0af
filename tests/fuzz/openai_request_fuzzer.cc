#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "router/api/api_error.h"
#include "router/api/request_parser.h"
#include "text/chat_messages.h"

namespace {

// Messages that a parser lets through can be fitted to any template, and are still JSON.
void FitToEveryTemplate(const baton::text::jinja::Value& messages) {
  using Traits = baton::text::ChatTemplateTraits;
  for (const Traits::CallContent content :
       {Traits::CallContent::kEmpty, Traits::CallContent::kNone, Traits::CallContent::kAbsent}) {
    for (const bool other : {false, true}) {
      Traits traits;
      traits.call_content = content;
      traits.takes_content_parts = traits.takes_call_arguments_as_text = other;
      traits.takes_text_content = traits.knows_developer_role = !other;
      const auto fitted = baton::text::FitMessages(messages, traits);
      BATON_CHECK(fitted.items().size() == messages.items().size(), "a message was lost");
      BATON_CHECK(baton::text::jinja::DumpJson(fitted).ok(), "fitted messages are not JSON");
    }
  }
}

}  // namespace

// Every request body of the HTTP door: each parser takes any bytes, and gives a request or an error
// that can be written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace baton::router;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto chat = ParseChatRequest(body);
  if (chat.ok()) {
    FitToEveryTemplate(chat->chat.messages);
  } else {
    ApiError::FromStatus(chat.status()).ToJson();
  }
  const auto completion = ParseCompletionRequest(body);
  if (!completion.ok()) ApiError::FromStatus(completion.status()).ToJson();
  (void)ParseTokenizeRequest(body).ok();
  (void)ParseDetokenizeRequest(body).ok();
  return 0;
}
