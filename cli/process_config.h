#pragma once
#include <string>

#include "common/config_field.h"
#include "common/log.h"
#include "router/router_config.h"

namespace baton::cli {

// How a process logs. Workers declare the same two settings in their own config.
struct LogConfig {
  std::string log_level = "info";
  std::string log_format = "text";
  template <class Visitor>
  void VisitFields(Visitor&& field) {
    field(log_level, "log-level", {.choices = {"debug", "info", "warn", "error"}},
          "Least severe event that is logged.");
    field(log_format, "log-format", {.choices = {"text", "json"}}, "Shape of a log line.");
  }
};

// Settings of the process `baton router`.
struct RouterProcessConfig {
  router::RouterConfig router;
  LogConfig log;
  absl::Duration drain_timeout = absl::Seconds(30);
  template <class Visitor>
  void VisitFields(Visitor&& field) {
    router.VisitFields(field);
    log.VisitFields(field);
    field(drain_timeout, "drain-timeout", {.min = 0, .max = 86400},
          "How long running requests may go on after SIGTERM.");
  }
};

inline void ConfigureLog(const std::string& level, const std::string& format,
                         const std::string& process) {
  log::Options options;
  options.level = level == "debug"   ? log::Level::kDebug
                  : level == "warn"  ? log::Level::kWarn
                  : level == "error" ? log::Level::kError
                                     : log::Level::kInfo;
  options.json = format == "json";
  options.process = process;
  log::Configure(options);
}

}  // namespace baton::cli
