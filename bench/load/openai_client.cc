#include "bench/load/openai_client.h"

#include <httplib.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace baton::bench {
namespace {

using nlohmann::json;

// Splits a byte stream into server-sent events' data and times those that carry tokens.
class EventReader {
 public:
  EventReader(bool chat, RequestResult& result) : chat_(chat), result_(result) {}

  void Feed(const char* data, size_t size) {
    const absl::Time now = absl::Now();
    buffer_.append(data, size);
    for (size_t end; (end = buffer_.find('\n')) != std::string::npos;) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.rfind("data:", 0) != 0) continue;
      line.erase(0, std::min(line.find_first_not_of(' ', 5), line.size()));
      if (!line.empty()) OnData(line, now);
    }
  }
  bool done() const { return done_; }
  const std::string& rest() const { return buffer_; }  // an error body has no events

 private:
  void OnData(const std::string& data, absl::Time now) {
    if (data == "[DONE]") {
      done_ = true;
      return;
    }
    const json event = json::parse(data, nullptr, /*allow_exceptions=*/false);
    if (event.is_discarded() || !event.is_object()) return Fail("malformed event", data);
    if (event.contains("error")) return Fail("error event", event["error"].dump());
    if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
      result_.prompt_tokens = Count(*usage, "prompt_tokens");
      result_.output_tokens = Count(*usage, "completion_tokens");
    }
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array() || choices->empty()) return;
    if ((*choices)[0].is_object() && CarriesTokens((*choices)[0])) OnToken(now);
  }

  // A server may leave a number out, or send something else in its place.
  static int Count(const json& usage, const char* name) {
    const auto found = usage.find(name);
    return found != usage.end() && found->is_number_integer() ? found->get<int>() : 0;
  }

  bool CarriesTokens(const json& choice) const {
    if (!chat_) {
      const auto text = choice.find("text");
      return text != choice.end() && text->is_string() &&
             !text->get_ref<const std::string&>().empty();
    }
    const auto delta = choice.find("delta");
    if (delta == choice.end() || !delta->is_object()) return false;
    for (const char* field : {"content", "reasoning_content"}) {
      const auto text = delta->find(field);
      if (text != delta->end() && text->is_string() &&
          !text->get_ref<const std::string&>().empty()) {
        return true;
      }
    }
    return false;
  }

  void OnToken(absl::Time now) {
    if (result_.events == 0) {
      result_.first_token = now;
    } else {
      result_.gaps.push_back(now - result_.last_token);
    }
    result_.last_token = now;
    ++result_.events;
  }

  void Fail(const std::string& kind, const std::string& detail) {
    if (!result_.error.empty()) return;
    result_.error = kind;
    result_.error_detail = detail;
  }

  const bool chat_;
  RequestResult& result_;
  std::string buffer_;
  bool done_ = false;
};

std::string MakeBody(const BenchConfig& config, const WorkItem& item, const std::string& model) {
  json body = {{"model", model},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"temperature", config.temperature},
               {"max_tokens", item.max_tokens}};
  if (config.ignore_eos) body["ignore_eos"] = true;
  if (config.endpoint == "chat") {
    body["messages"] = json::array({{{"role", "user"}, {"content", item.text}}});
  } else if (item.tokens.empty()) {
    body["prompt"] = item.text;
  } else {
    body["prompt"] = item.tokens;
  }
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

absl::Duration RequestResult::tpot() const {
  const int tokens = std::max(output_tokens, events);
  return tokens < 2 ? absl::ZeroDuration() : (last_token - first_token) / (tokens - 1);
}

class OpenAiClient::State {
 public:
  explicit State(const BenchConfig& bench_config) : config(bench_config), http(config.url) {
    http.set_read_timeout(absl::ToChronoMilliseconds(config.timeout));
    http.set_connection_timeout(10);
    http.set_keep_alive(true);
    http.set_tcp_nodelay(true);
    if (!config.api_key.empty()) headers.emplace("Authorization", "Bearer " + config.api_key);
  }
  const BenchConfig& config;
  httplib::Client http;
  httplib::Headers headers;
};

OpenAiClient::OpenAiClient(const BenchConfig& config) : state_(std::make_unique<State>(config)) {}
OpenAiClient::~OpenAiClient() = default;

RequestResult OpenAiClient::Run(const WorkItem& item, const std::string& model) {
  RequestResult result;
  const bool chat = state_->config.endpoint == "chat";
  EventReader reader(chat, result);
  httplib::Request request;
  request.method = "POST";
  request.path = chat ? "/v1/chat/completions" : "/v1/completions";
  request.headers = state_->headers;
  request.set_header("Content-Type", "application/json");
  request.body = MakeBody(state_->config, item, model);
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    reader.Feed(data, size);
    return true;
  };
  result.sent = absl::Now();
  const auto answer = state_->http.send(request);
  result.ended = absl::Now();
  if (!answer) {
    result.error = answer.error() == httplib::Error::Read ? "timeout or closed" : "connection";
    result.error_detail = httplib::to_string(answer.error());
  } else if (answer->status != 200) {
    result.error = absl::StrCat("http ", answer->status);
    result.error_detail = reader.rest();
  } else if (result.ok() && !reader.done()) {
    result.error = "stream ended early";
  } else if (result.ok() && result.events == 0) {
    result.error = "no tokens";
  }
  if (result.output_tokens == 0) result.output_tokens = result.events;
  return result;
}

absl::StatusOr<std::string> OpenAiClient::FirstModel() {
  const auto answer = state_->http.Get("/v1/models", state_->headers);
  if (!answer || answer->status != 200) {
    return absl::UnavailableError(absl::StrCat(
        "cannot list models at ", state_->config.url, "/v1/models: ",
        answer ? absl::StrCat("http ", answer->status) : httplib::to_string(answer.error()),
        "; is the server up? Give --url, or --model to skip this"));
  }
  const json body = json::parse(answer->body, nullptr, false);
  if (!body.is_object() || !body.contains("data") || !body["data"].is_array() ||
      body["data"].empty() || !body["data"][0].is_object() || !body["data"][0].contains("id") ||
      !body["data"][0]["id"].is_string()) {
    return absl::UnavailableError("/v1/models lists no model; give --model");
  }
  return body["data"][0]["id"].get<std::string>();
}

}  // namespace baton::bench
