#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

// Errors as clients see them. Inside the router they travel as absl::Status; what OpenAI's error
// object has beyond code and message is attached to the status as payloads.
namespace baton::router {

// kInvalidArgument that blames the request's field `param`, e.g. "stop[1]". `code` is OpenAI's word
// for the kind of mistake: "invalid_type", "invalid_value", "context_length_exceeded".
absl::Status FieldError(std::string_view param, std::string_view code, std::string_view message);

// `status` with a field or code of OpenAI's error object attached; empty ones are left out.
absl::Status WithErrorDetails(absl::Status status, std::string_view param, std::string_view code);
absl::Status WithRetryAfter(absl::Status status, absl::Duration retry_after);

// 404 for a model that is not served here.
absl::Status ModelNotFound(std::string_view model);

struct ApiError {
  int http_status = 500;
  std::string type;  // "invalid_request_error", "rate_limit_error", "server_error", ...
  std::string message;
  std::string param;                          // empty = null
  std::string code;                           // empty = null
  std::optional<absl::Duration> retry_after;  // whole seconds; set for 429 and 503

  static ApiError FromStatus(const absl::Status& status);
  // OpenAI's {"error": {...}}, no line end.
  std::string ToJson() const;
};

}  // namespace baton::router
