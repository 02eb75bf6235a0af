#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/config_field.h"

namespace baton::router {

// Every setting of a router. Names are vLLM's where they mean the same.
struct RouterConfig {
  std::string model;
  std::vector<std::string> served_model_name;
  std::string host = "0.0.0.0";
  int port = 8000;
  int grpc_port = 8001;
  int session_port = 8002;
  std::string session_host;
  std::vector<std::string> api_key;
  int max_model_len = 0;
  std::string chat_template;
  int default_max_tokens = 0;
  int max_concurrent_requests = 1024;
  int max_waiting_requests = 512;
  absl::Duration request_timeout = absl::Minutes(10);
  std::string placement_policy = "least-loaded";
  int local_prefill_threshold = 0;
  bool local_prefill_fallback = false;
  absl::Duration heartbeat_interval = absl::Milliseconds(500);
  int heartbeat_misses = 4;
  int http_threads = 1;
  int text_threads = 1;
  int max_connections = 4096;
  std::int64_t max_body_bytes = 8 << 20;
  std::int64_t max_unread_bytes = 1 << 20;
  int timeline_capacity = 2048;
  absl::Duration drain_timeout = absl::Seconds(30);
  std::string log_level = "info";
  std::string log_format = "text";

  template <class Visitor>
  void VisitFields(Visitor&& field) {
    field(model, "model", {},
          "Model whose tokenizer and chat template the router uses: a .gguf file or a Hugging Face "
          "directory.");
    field(served_model_name, "served-model-name", {},
          "Names that requests may give; the first is the default. Default: the model's file or "
          "directory name.");
    field(host, "host", {}, "Address to listen on for HTTP and gRPC.");
    field(port, "port", {.min = 0, .max = 65535}, "HTTP port; 0 picks one.");
    field(grpc_port, "grpc-port", {.min = -1, .max = 65535},
          "gRPC port; 0 picks one, -1 turns gRPC off.");
    field(session_port, "session-port", {.min = 0, .max = 65535},
          "Port that workers dial; 0 picks one.");
    field(session_host, "session-host", {},
          "Address to listen on for workers, who are not asked for a key; default: that of host.");
    field(api_key, "api-key", {.secret = true},
          "Keys that clients must send one of as 'Authorization: Bearer KEY'; none: open to all.");
    field(max_model_len, "max-model-len", {.unit = "tokens", .min = 0},
          "Longest prompt plus output; 0: what the model's positions allow.");
    field(chat_template, "chat-template", {},
          "File with a Jinja chat template to use instead of the model's own.");
    field(
        default_max_tokens, "default-max-tokens", {.unit = "tokens", .min = 0},
        "Output tokens when a request sets no limit; 0: what the context leaves for chats, 16 for "
        "completions.");
    field(max_concurrent_requests, "max-concurrent-requests", {.min = 1},
          "Sequences (n per request) at work at most; beyond them 429.");
    field(max_waiting_requests, "max-waiting-requests", {.min = 1},
          "Sequences without a first token at most; beyond them 429.");
    field(request_timeout, "request-timeout", {.min = 0.001},
          "A request that is not over by then fails with 504.");
    field(placement_policy, "placement-policy", {.choices = {"least-loaded"}},
          "How workers are chosen.");
    field(local_prefill_threshold, "local-prefill-threshold", {.unit = "tokens", .min = 0},
          "Prompts up to so long are prefilled by their decode worker; 0: none.");
    field(local_prefill_fallback, "local-prefill-fallback", {},
          "With no prefill worker, let decode workers prefill instead of answering 503.");
    field(heartbeat_interval, "heartbeat-interval", {.min = 0.01, .max = 60},
          "How often workers report their load.");
    field(heartbeat_misses, "heartbeat-misses", {.min = 1, .max = 100},
          "A worker silent for so many intervals is lost.");
    field(http_threads, "http-threads", {.min = 1, .max = 64}, "Threads that serve HTTP.");
    field(text_threads, "text-threads", {.min = 1, .max = 64},
          "Threads that parse and tokenize requests.");
    field(max_connections, "max-connections", {.min = 1}, "HTTP connections at most.");
    field(max_body_bytes, "max-body-bytes", {.unit = "bytes", .min = 1024},
          "Largest request body; beyond it 413.");
    field(max_unread_bytes, "max-unread-bytes", {.unit = "bytes", .min = 1024},
          "A streaming client that leaves more than this unread is cut off.");
    field(timeline_capacity, "timeline-capacity", {.min = 1, .max = 1000000},
          "Ended sequences whose timelines /debug/requests/ID still knows.");
    field(drain_timeout, "drain-timeout", {.min = 0, .max = 86400},
          "How long running requests may go on after SIGTERM.");
    field(log_level, "log-level", {.choices = {"debug", "info", "warn", "error"}},
          "Least severe event that is logged.");
    field(log_format, "log-format", {.choices = {"text", "json"}}, "Shape of a log line.");
  }
};

}  // namespace baton::router
