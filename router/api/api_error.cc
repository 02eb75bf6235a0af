#include "router/api/api_error.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/api/json_text.h"

namespace baton::router {
namespace {

constexpr char kParam[] = "baton/param";
constexpr char kCode[] = "baton/code";
constexpr char kRetryAfter[] = "baton/retry-after-seconds";

std::string Payload(const absl::Status& status, const char* key) {
  const auto payload = status.GetPayload(key);
  return payload.has_value() ? std::string(*payload) : std::string();
}

void SetText(absl::Status& status, const char* key, std::string_view text) {
  if (!text.empty()) {
    status.SetPayload(key, absl::Cord(absl::string_view(text.data(), text.size())));
  }
}

std::string_view ErrorType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string_view DefaultCode(int http_status) {
  switch (http_status) {
    case 429:
      return "rate_limit_exceeded";
    case 503:
      return "service_unavailable";
    case 504:
      return "timeout";
    default:
      return "";
  }
}

}  // namespace

absl::Status WithErrorDetails(absl::Status status, std::string_view param, std::string_view code) {
  SetText(status, kParam, param);
  SetText(status, kCode, code);
  return status;
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration retry_after) {
  SetText(status, kRetryAfter, absl::StrCat(absl::ToInt64Seconds(retry_after)));
  return status;
}

absl::Status FieldError(std::string_view param, std::string_view code, std::string_view message) {
  return WithErrorDetails(
      absl::InvalidArgumentError(absl::string_view(message.data(), message.size())), param, code);
}

absl::Status ModelNotFound(std::string_view model) {
  return WithErrorDetails(absl::NotFoundError("The model `" + std::string(model) +
                                              "` does not exist or is not served here; "
                                              "GET /v1/models lists what is"),
                          "model", "model_not_found");
}

ApiError ApiError::FromStatus(const absl::Status& status) {
  ApiError error;
  error.http_status = HttpStatusCode(status.code());
  error.type = ErrorType(error.http_status);
  error.message = std::string(status.message());
  error.param = Payload(status, kParam);
  error.code = Payload(status, kCode);
  if (error.code.empty()) error.code = DefaultCode(error.http_status);
  if (error.http_status == 429 || error.http_status == 503) {
    std::int64_t seconds = 1;
    if (!absl::SimpleAtoi(Payload(status, kRetryAfter), &seconds)) seconds = 1;
    error.retry_after = absl::Seconds(std::max<std::int64_t>(1, seconds));
  }
  return error;
}

std::string ApiError::ToJson() const {
  std::string out = "{\"error\":{\"message\":";
  AppendJsonString(message, out);
  out += ",\"type\":";
  AppendJsonString(type, out);
  out += ",\"param\":";
  if (param.empty()) {
    out += "null";
  } else {
    AppendJsonString(param, out);
  }
  out += ",\"code\":";
  if (code.empty()) {
    out += "null";
  } else {
    AppendJsonString(code, out);
  }
  out += "}}";
  return out;
}

}  // namespace baton::router
