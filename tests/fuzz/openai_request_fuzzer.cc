#include <cstddef>
#include <cstdint>
#include <string_view>

#include "router/api/api_error.h"
#include "router/api/chat_messages.h"
#include "router/api/request_parser.h"

// Every request body of the HTTP door: each parser takes any bytes, and gives a request or an error
// that can be written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace baton::router;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto chat = ParseChatRequest(body);
  if (chat.ok()) {
    JoinContentParts(chat->chat.messages);
  } else {
    ApiError::FromStatus(chat.status()).ToJson();
  }
  const auto completion = ParseCompletionRequest(body);
  if (!completion.ok()) ApiError::FromStatus(completion.status()).ToJson();
  (void)ParseTokenizeRequest(body).ok();
  (void)ParseDetokenizeRequest(body).ok();
  return 0;
}
