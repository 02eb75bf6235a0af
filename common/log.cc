#include "common/log.h"

#include <atomic>
#include <memory>
#include <mutex>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace baton::log {
namespace {

struct State {
  std::shared_ptr<spdlog::logger> logger =
      std::make_shared<spdlog::logger>("baton", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  std::mutex mutex;
  std::string process;
  std::atomic<bool> json{false};
  std::atomic<Level> level{Level::kInfo};
  State() {
    logger->set_pattern("%v");
    logger->set_level(spdlog::level::trace);
    logger->flush_on(spdlog::level::trace);
  }
};

State& GetState() {
  static State* const state = new State;  // never destroyed: threads may log until the very end
  return *state;
}

const char* Name(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarn:
      return "warn";
    case Level::kError:
      return "error";
  }
  return "info";
}

// Appends `text` as the inside of a JSON string. Bytes that are not ASCII pass as they are: our
// own messages are UTF-8.
void AppendEscaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += absl::StrFormat("\\u%04x", c);
        } else {
          out += c;
        }
    }
  }
}

bool NeedsQuotes(std::string_view value) {
  return value.empty() || value.find_first_of(" \"=\n\t\r\\") != std::string_view::npos;
}

}  // namespace

void Configure(const Options& options) {
  State& state = GetState();
  std::lock_guard lock(state.mutex);
  state.process = options.process;
  state.json = options.json;
  state.level = options.level;
}

bool Enabled(Level level) { return level >= GetState().level.load(std::memory_order_relaxed); }

void Write(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (!Enabled(level)) return;
  State& state = GetState();
  std::string process;
  {
    std::lock_guard lock(state.mutex);
    process = state.process;
  }
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  std::string line;
  if (state.json) {
    line = absl::StrFormat("{\"time\":\"%s\",\"level\":\"%s\"", time, Name(level));
    if (!process.empty()) {
      line += ",\"process\":\"";
      AppendEscaped(process, line);
      line += '"';
    }
    line += ",\"message\":\"";
    AppendEscaped(message, line);
    line += '"';
    for (const Field& field : fields) {
      line += ",\"";
      AppendEscaped(field.name, line);
      line += "\":";
      if (field.quoted) line += '"';
      AppendEscaped(field.value, line);
      if (field.quoted) line += '"';
    }
    line += '}';
  } else {
    line = absl::StrFormat("%s %-5s ", time, Name(level));
    if (!process.empty()) line += "[" + process + "] ";
    line.append(message);
    for (const Field& field : fields) {
      line += ' ';
      line.append(field.name);
      line += '=';
      const bool quotes = field.quoted && NeedsQuotes(field.value);
      if (quotes) line += '"';
      if (quotes) {
        AppendEscaped(field.value, line);
      } else {
        line += field.value;
      }
      if (quotes) line += '"';
    }
  }
  state.logger->log(spdlog::level::info, "{}", line);
}

}  // namespace baton::log
