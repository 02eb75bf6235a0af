#pragma once
#include <string>

#include "absl/time/time.h"
#include "common/config_field.h"

namespace baton::bench {

// Settings of `baton bench`.
struct BenchConfig {
  std::string url = "http://127.0.0.1:8000";
  std::string model;
  std::string api_key;
  std::string endpoint = "completions";
  std::string dataset = "random";
  std::string prompts_file;
  std::string trace_file;
  int num_prompts = 32;
  int num_warmups = 2;
  int concurrency = 8;
  double request_rate = 0;
  double time_scale = 1;
  double length_scale = 1;
  int input_len = 128;
  int output_len = 128;
  int random_vocab = 1000;
  bool ignore_eos = true;
  double temperature = 0;
  int seed = 1;
  absl::Duration timeout = absl::Seconds(600);
  absl::Duration slo_ttft = absl::Seconds(1);
  absl::Duration slo_tpot = absl::Milliseconds(100);
  double gate_goodput = 0;
  std::string output_json;
  bool progress = true;

  template <class Visitor>
  void VisitFields(Visitor&& field) {
    VisitTarget(field);
    VisitWork(field);
    VisitReport(field);
  }

 private:
  template <class Visitor>
  void VisitTarget(Visitor& field) {
    field(url, "url", {}, "Base URL of the server under test.");
    field(model, "model", {}, "Model name to ask for; empty asks /v1/models for the first.");
    field(api_key, "api-key", {.secret = true}, "Bearer token, if the server wants one.");
    field(endpoint, "endpoint", {.choices = {"completions", "chat"}},
          "completions sends the prompt as it is, chat as one user message.");
    field(timeout, "timeout", {.min = 0.1}, "Longest wait for any byte of an answer.");
  }
  template <class Visitor>
  void VisitWork(Visitor& field) {
    field(dataset, "dataset", {.choices = {"random", "file", "trace"}},
          "Prompts: random token ids, lines of a file, or the lengths and arrivals of a trace.");
    field(prompts_file, "prompts-file", {},
          "For dataset=file: one prompt a line; repeated as often as needed.");
    field(trace_file, "trace-file", {},
          "For dataset=trace: an Azure LLM trace (.csv) or a Mooncake trace (.jsonl).");
    field(num_prompts, "num-prompts", {.min = 1, .max = 10000000}, "Measured requests.");
    field(num_warmups, "num-warmups", {.min = 0, .max = 100000},
          "Requests sent first, one after the other, and left out of every figure.");
    field(concurrency, "concurrency", {.min = 1, .max = 4096},
          "Closed loop: requests under way at once. The open loop has up to 1024.");
    field(request_rate, "request-rate", {.unit = "requests/s", .min = 0},
          "Open loop: Poisson arrivals at this rate; 0 is the closed loop. A trace brings its own "
          "arrivals unless a rate is given.");
    field(time_scale, "time-scale", {.min = 1e-6, .max = 1e6},
          "Multiplies a trace's gaps between arrivals; 0.1 replays ten times faster.");
    field(length_scale, "length-scale", {.min = 1e-6, .max = 1e3},
          "Multiplies a trace's prompt and output lengths (at least 1 token remains).");
    field(input_len, "input-len", {.unit = "tokens", .min = 1, .max = 1 << 20},
          "Prompt length for dataset=random.");
    field(output_len, "output-len", {.unit = "tokens", .min = 1, .max = 1 << 20},
          "max_tokens for dataset=random and dataset=file.");
    field(random_vocab, "random-vocab", {.min = 2, .max = 1 << 24},
          "Random token ids are drawn from this many ids above 256; keep it below the vocabulary.");
    field(ignore_eos, "ignore-eos", {}, "Ask for exactly max_tokens tokens.");
    field(temperature, "temperature", {.min = 0, .max = 2}, "Sampling temperature.");
    field(seed, "seed", {.min = 0}, "Seed of prompts and arrivals.");
  }
  template <class Visitor>
  void VisitReport(Visitor& field) {
    field(slo_ttft, "slo-ttft", {.min = 0}, "A request is good if its TTFT is at most this ...");
    field(slo_tpot, "slo-tpot", {.min = 0}, "... and its TPOT at most this.");
    field(gate_goodput, "gate-goodput", {.min = 0, .max = 1},
          "Exit with 1 when fewer than this share of the requests were good; 0 gates nothing.");
    field(output_json, "output-json", {},
          "Also write the report to this file; - is standard output.");
    field(progress, "progress", {}, "Show a progress bar on a terminal.");
  }
};

}  // namespace baton::bench
