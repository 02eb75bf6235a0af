#include "router/api/sampling_fields.h"

#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "router/api/api_error.h"
#include "router/api/request_parser.h"

namespace baton::router {
namespace {

using text::jinja::Dict;
using text::jinja::Value;

constexpr std::int32_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMinInt64 = std::numeric_limits<std::int64_t>::min();

void ReadSampler(JsonFields& fields, GenerationRequest& request) {
  SamplingParams& sampling = request.sampling;
  const auto set = [&](std::string_view name, bool present) {
    if (present) request.explicit_fields.emplace_back(name);
  };
  set("temperature", fields.Float("temperature", 0, 2, sampling.temperature));
  set("top_p", fields.Float("top_p", 0, 1, sampling.top_p));
  set("min_p", fields.Float("min_p", 0, 1, sampling.min_p));
  set("top_k", fields.Int32("top_k", -1, kMaxInt32, sampling.top_k));
  if (sampling.top_k < 0) sampling.top_k = 0;  // both spell "off"
  fields.Float("presence_penalty", -2, 2, sampling.presence_penalty);
  fields.Float("frequency_penalty", -2, 2, sampling.frequency_penalty);
  set("repetition_penalty",
      fields.Float("repetition_penalty", 1e-3, 1e3, sampling.repetition_penalty));
  std::int64_t seed = 0;
  if (fields.Int("seed", kMinInt64, kMaxInt64, seed)) request.seed = seed;
}

void ReadLogitBias(JsonFields& fields, GenerationRequest& request) {
  const Dict* bias = fields.Object("logit_bias");
  if (bias == nullptr) return;
  for (const auto& [key, value] : bias->items()) {
    std::int32_t token = 0;
    if (!key.is_string() || !absl::SimpleAtoi(key.str(), &token) || token < 0) {
      fields.Fail("logit_bias", "invalid_value", "keys must be token ids");
      return;
    }
    const double amount = value.is_float() ? value.as_float()
                          : value.is_int() ? static_cast<double>(value.as_int())
                                           : std::nan("");
    if (!(amount >= -100 && amount <= 100)) {
      fields.Fail(absl::StrCat("logit_bias.", key.str()), "invalid_value",
                  "expected a number from -100 to 100");
      return;
    }
    request.sampling.logit_bias.emplace_back(token, static_cast<float>(amount));
  }
}

void ReadLengthsAndStops(JsonFields& fields, GenerationRequest& request) {
  const auto read_max = [&](std::string_view name) {
    // Completions may ask for nothing but their echoed prompt's log-probabilities.
    const std::int32_t min = request.echo ? 0 : 1;
    std::int32_t max_tokens = 0;
    if (!fields.Int32(name, min, kMaxInt32, max_tokens)) return;
    request.max_tokens = max_tokens;
    request.max_tokens_field = std::string(name);
  };
  read_max("max_tokens");
  read_max("max_completion_tokens");
  fields.Int32("min_tokens", 0, kMaxInt32, request.sampling.min_tokens);
  if (request.max_tokens.has_value() && request.sampling.min_tokens > *request.max_tokens) {
    fields.Fail("min_tokens", "invalid_value",
                absl::StrCat("must not exceed ", request.max_tokens_field, ", which is ",
                             *request.max_tokens));
  }
  fields.Bool("ignore_eos", request.sampling.ignore_eos);
  fields.Int32List("stop_token_ids", 0, kMaxInt32, request.stop_token_ids);
  if (request.stop_token_ids.size() > 64) {
    fields.Fail("stop_token_ids", "invalid_value", "at most 64 are allowed");
  }
  if (fields.StringOrList("stop", request.stop)) {
    if (const absl::Status status = CheckStopStrings(request.stop); !status.ok()) {
      fields.Fail("stop", "invalid_value", std::string(status.message()));
    }
  }
  fields.Bool("include_stop_str_in_output", request.include_stop_str_in_output);
}

void ReadAnswerFields(JsonFields& fields, GenerationRequest& request) {
  fields.Int32("n", 1, kMaxChoices, request.n);
  fields.Bool("stream", request.stream);
  if (const Dict* options = fields.Object("stream_options")) {
    if (!request.stream) {
      fields.Fail("stream_options", "invalid_value", "only allowed when stream is true");
    }
    JsonFields nested(*options, "stream_options");
    nested.Bool("include_usage", request.include_usage);
    fields.Adopt(nested.status());
  }
  fields.Bool("skip_special_tokens", request.skip_special_tokens);
  fields.Bool("return_token_ids", request.return_token_ids);
  fields.Int32("priority", std::numeric_limits<std::int32_t>::min(), kMaxInt32, request.priority);
  fields.String("user", request.user);
  SamplingParams& sampling = request.sampling;
  if (fields.Int32("prompt_logprobs", 0, kMaxTopLogprobs, sampling.num_prompt_logprobs)) {
    sampling.prompt_logprobs = request.wants_prompt_logprobs = true;
    if (request.stream) {
      fields.Fail("prompt_logprobs", "invalid_value", "not available when stream is true");
    }
  }
}

}  // namespace

absl::Status CheckStopStrings(const std::vector<std::string>& stop) {
  std::size_t num_bytes = 0;
  for (const std::string& text : stop) {
    if (text.empty()) return FieldError("stop", "invalid_value", "must not hold an empty string");
    num_bytes += text.size();
  }
  if (stop.size() > kMaxStopStrings || num_bytes > kMaxStopBytes) {
    return FieldError("stop", "invalid_value",
                      absl::StrCat("at most ", kMaxStopStrings, " strings of ", kMaxStopBytes,
                                   " bytes together are allowed"));
  }
  return absl::OkStatus();
}

void ReadSamplingFields(JsonFields& fields, GenerationRequest& request) {
  ReadSampler(fields, request);
  ReadLogitBias(fields, request);
  ReadLengthsAndStops(fields, request);
  ReadAnswerFields(fields, request);
}

}  // namespace baton::router
