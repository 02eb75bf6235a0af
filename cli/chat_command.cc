#include <httplib.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/config/loader.h"

namespace baton::cli {
namespace {

using nlohmann::json;

struct ChatConfig {
  std::string url = "http://127.0.0.1:8000";
  std::string api_key;
  std::string system;
  int max_tokens = 128;
  double temperature = 0;
  absl::Duration timeout = absl::Seconds(300);
  template <class Visitor>
  void VisitFields(Visitor&& field) {
    field(url, "url", {}, "Base URL of the router.");
    field(api_key, "api-key", {.secret = true}, "Bearer token, if the router wants one.");
    field(system, "system", {}, "A system message.");
    field(max_tokens, "max-tokens", {.unit = "tokens", .min = 1}, "Longest answer.");
    field(temperature, "temperature", {.min = 0, .max = 2}, "Sampling temperature.");
    field(timeout, "timeout", {.min = 0.1}, "Longest wait for any byte.");
  }
};

struct Measured {
  absl::Time sent, first, last;
  int events = 0;
  int output_tokens = 0;
  int prompt_tokens = 0;
  std::string error;
};

int Count(const json& usage, const char* name) {
  const auto found = usage.find(name);
  return found != usage.end() && found->is_number_integer() ? found->get<int>() : 0;
}

// Prints the text of one event as it comes.
void OnEvent(const std::string& data, Measured& measured) {
  const json event = json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object()) return;
  if (event.contains("error")) {
    measured.error = event["error"].dump();
    return;
  }
  if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
    measured.output_tokens = Count(*usage, "completion_tokens");
    measured.prompt_tokens = Count(*usage, "prompt_tokens");
  }
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array() || choices->empty() ||
      !(*choices)[0].is_object()) {
    return;
  }
  const auto delta = (*choices)[0].find("delta");
  if (delta == (*choices)[0].end() || !delta->is_object()) return;
  const auto content = delta->find("content");
  if (content == delta->end() || !content->is_string()) return;
  const std::string text = content->get<std::string>();
  if (text.empty()) return;
  measured.last = absl::Now();
  if (measured.events++ == 0) measured.first = measured.last;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void PrintTimes(const Measured& measured) {
  std::printf("\n\nTTFT %.1f ms for %d prompt tokens",
              absl::ToDoubleMilliseconds(measured.first - measured.sent), measured.prompt_tokens);
  if (measured.output_tokens > 1) {
    const double gap =
        absl::ToDoubleMilliseconds(measured.last - measured.first) / (measured.output_tokens - 1);
    std::printf(", TPOT %.2f ms, %.1f tokens/s", gap, 1000 / gap);
  }
  std::printf("\n");
}

// The sequence's entry in its timeline, once it is there with the prefill worker's account of the
// handoff: that may come a moment after the last token. Null when it does not come.
json ReadTimeline(httplib::Client& http, const httplib::Headers& headers,
                  const std::string& request_id) {
  const absl::Time deadline = absl::Now() + absl::Seconds(2);
  for (;;) {
    const auto answer = http.Get("/debug/requests/" + request_id, headers);
    if (!answer) return json();
    const json timeline = json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
    if (answer->status == 200 && timeline.is_object() && timeline.contains("sequences") &&
        !timeline["sequences"].empty()) {
      const json& sequence = timeline["sequences"][0];
      if (sequence.contains("transfer") && sequence["transfer"].value("total_seconds", 0.0) > 0) {
        return sequence;
      }
    }
    if (absl::Now() > deadline) return json();
    absl::SleepFor(absl::Milliseconds(20));
  }
}

void PrintHandoff(const json& sequence) {
  if (!sequence.is_object()) return;
  const json& transfer = sequence["transfer"];
  const double total = 1000 * transfer.value("total_seconds", 0.0);
  // What the client waited for: the part between the first token and the second.
  const double exposed =
      sequence.contains("phases") ? 1000 * sequence["phases"].value("exposed_transfer", 0.0) : 0.0;
  std::printf("KV handoff %.1f KiB over %.1f ms, %.1f%% hidden under compute (%.2f ms exposed)\n",
              transfer.value("bytes", 0.0) / 1024, total,
              100 * (1 - std::min(1.0, exposed / total)), exposed);
}

}  // namespace

int RunReady(const std::vector<std::string>& args) {
  ChatConfig config;
  auto settings = CollectSettings(config);
  const auto loaded = LoadSettings(settings, args);
  if (!loaded.ok()) {
    std::fprintf(stderr, "baton ready: %s\n", std::string(loaded.status().message()).c_str());
    return 2;
  }
  if (loaded->help) {
    std::printf("%s", HelpText("usage: baton ready [--url URL]", settings).c_str());
    return 0;
  }
  httplib::Client http(config.url);
  http.set_connection_timeout(2);
  http.set_read_timeout(2);
  const auto answer = http.Get("/ready");
  if (answer && answer->status == 200) return 0;
  std::fprintf(stderr, "baton ready: %s: %s\n", config.url.c_str(),
               answer ? answer->body.c_str() : httplib::to_string(answer.error()).c_str());
  return 1;
}

int RunChat(const std::vector<std::string>& args) {
  ChatConfig config;
  auto settings = CollectSettings(config);
  const auto loaded = LoadSettings(settings, args, /*max_positional=*/1000);
  if (!loaded.ok() || (!loaded->help && loaded->positional.empty())) {
    std::fprintf(stderr, "baton chat: %s\n",
                 loaded.ok() ? "say something: baton chat MESSAGE"
                             : std::string(loaded.status().message()).c_str());
    return 2;
  }
  if (loaded->help) {
    std::printf("%s",
                HelpText("usage: baton chat [--SETTING VALUE ...] MESSAGE", settings).c_str());
    return 0;
  }
  const std::string message = absl::StrJoin(loaded->positional, " ");
  json messages = json::array();
  if (!config.system.empty()) messages.push_back({{"role", "system"}, {"content", config.system}});
  messages.push_back({{"role", "user"}, {"content", message}});
  const json body = {{"messages", messages},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}},
                     {"max_tokens", config.max_tokens},
                     {"temperature", config.temperature}};

  httplib::Client http(config.url);
  http.set_read_timeout(absl::ToInt64Seconds(config.timeout));
  httplib::Headers headers;
  if (!config.api_key.empty()) headers.emplace("Authorization", "Bearer " + config.api_key);
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.headers = headers;
  request.set_header("Content-Type", "application/json");
  request.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  Measured measured;
  std::string buffer;
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    buffer.append(data, size);
    for (size_t end; (end = buffer.find('\n')) != std::string::npos;) {
      const std::string line = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      if (line.rfind("data: ", 0) == 0) OnEvent(line.substr(6), measured);
    }
    return true;
  };
  std::printf("> %s\n", message.c_str());
  measured.sent = absl::Now();
  const auto answer = http.send(request);
  if (!answer || answer->status != 200 || !measured.error.empty() || measured.events == 0) {
    std::fprintf(stderr, "baton chat: %s: %s\n", config.url.c_str(),
                 !answer                   ? httplib::to_string(answer.error()).c_str()
                 : !measured.error.empty() ? measured.error.c_str()
                 : answer->status != 200   ? buffer.c_str()
                                           : "no text came back");
    return 1;
  }
  PrintTimes(measured);
  PrintHandoff(ReadTimeline(http, headers, answer->get_header_value("X-Request-Id")));
  return 0;
}

}  // namespace baton::cli
