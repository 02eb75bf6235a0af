// What a router costs per streamed token: a router in a process of its own, fake workers and SSE
// clients in this one, so that the router's CPU time can be read apart.
//
//   gateway_bench MODEL [--streams 32] [--tokens 400] [--step-ms 20] [--rounds 3]
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "router/router.h"
#include "router/served_model.h"
#include "tests/support/fake_worker.h"
#include "tests/support/http_client.h"

extern char** environ;

namespace {

using baton::testing::FakeHandoff;
using baton::testing::FakeWorker;
using baton::testing::HttpClient;

struct Options {
  std::string model;
  int streams = 32;
  int tokens = 400;
  double step_ms = 20;
  int rounds = 3;
};

// The child: a router that prints its ports and serves until stdin closes.
int RunRouter(const std::string& model) {
  baton::router::RouterConfig config;
  config.model = model;
  config.host = "127.0.0.1";
  config.port = config.session_port = 0;
  config.grpc_port = -1;
  baton::log::Configure({baton::log::Level::kWarn, false, "router"});
  auto router = baton::router::Router::Start(config);
  if (!router.ok()) {
    std::fprintf(stderr, "%s\n", router.status().ToString().c_str());
    return 1;
  }
  std::printf("%d %d\n", (*router)->http_port(), (*router)->session_port());
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

struct RouterProcess {
  pid_t pid = 0;
  int stdin_fd = -1;
  int http_port = 0;
  int session_port = 0;
};

RouterProcess SpawnRouter(const char* self, const std::string& model) {
  int to_child[2], from_child[2];
  if (pipe(to_child) != 0 || pipe(from_child) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) {
    posix_spawn_file_actions_addclose(&actions, fd);
  }
  std::string router_flag = "--router", model_argument = model;
  char* argv[] = {const_cast<char*>(self), router_flag.data(), model_argument.data(), nullptr};
  RouterProcess process;
  if (posix_spawn(&process.pid, self, &actions, nullptr, argv, environ) != 0) std::abort();
  close(to_child[0]);
  close(from_child[1]);
  process.stdin_fd = to_child[1];
  FILE* output = fdopen(from_child[0], "r");
  if (std::fscanf(output, "%d %d", &process.http_port, &process.session_port) != 2) {
    std::fprintf(stderr, "the router did not start\n");
    std::exit(1);
  }
  return process;
}

double CpuSeconds(pid_t pid) {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string ChatBody(const Options& options) {
  return absl::StrCat(
      "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story\"}],\"stream\":true,"
      "\"ignore_eos\":true,\"max_tokens\":",
      options.tokens, "}");
}

// Runs one round of streams at once; returns how many events came.
std::int64_t RunStreams(const RouterProcess& router, const Options& options) {
  std::vector<std::int64_t> events(options.streams, 0);
  std::vector<std::thread> clients;
  for (int i = 0; i < options.streams; ++i) {
    clients.emplace_back([&, i] {
      HttpClient client(router.http_port, absl::Seconds(120));
      client.Send("POST", "/v1/chat/completions", ChatBody(options));
      const auto stream = client.ReadUntil("[DONE]");
      if (!stream.ok()) return;
      for (std::size_t at = stream->find("data: "); at != std::string::npos;
           at = stream->find("data: ", at + 6)) {
        ++events[i];
      }
    });
  }
  for (std::thread& client : clients) client.join();
  std::int64_t sum = 0;
  for (const std::int64_t count : events) sum += count;
  return sum;
}

int RunBench(const char* self, const Options& options) {
  const RouterProcess router = SpawnRouter(self, options.model);
  auto model = baton::router::ServedModel::Load({options.model, {}, 0, ""});
  if (!model.ok()) return 1;
  FakeHandoff handoff;
  FakeWorker::Options worker;
  worker.router_port = router.session_port;
  worker.model_fingerprint = (*model)->fingerprint;
  worker.script = (*model)->tokenizer->Encode("Once upon a time there was a little girl who ");
  worker.step = absl::Milliseconds(1) * options.step_ms;
  worker.max_context = (*model)->max_context;
  worker.id = "p0";
  worker.role = baton::session::WorkerRole::kPrefill;
  auto prefill = std::make_unique<FakeWorker>(worker, handoff);
  worker.id = "d0";
  worker.role = baton::session::WorkerRole::kDecode;
  auto decode = std::make_unique<FakeWorker>(worker, handoff);
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  while (absl::Now() < give_up) {
    const auto ready = HttpClient(router.http_port).Do("GET", "/ready");
    if (ready.ok() && ready->status == 200) break;
    absl::SleepFor(absl::Milliseconds(20));
  }

  std::printf("%d streams, %d tokens each, a step every %.1f ms\n", options.streams, options.tokens,
              options.step_ms);
  std::printf("%8s %10s %12s %14s %16s\n", "round", "tokens", "tokens/s", "CPU us/token",
              "events/token");
  for (int round = 0; round < options.rounds; ++round) {
    const std::int64_t tokens_before = prefill->num_tokens_sent() + decode->num_tokens_sent();
    const double cpu_before = CpuSeconds(router.pid);
    const absl::Time began = absl::Now();
    const std::int64_t events = RunStreams(router, options);
    const double cpu = CpuSeconds(router.pid) - cpu_before;
    const double seconds = absl::ToDoubleSeconds(absl::Now() - began);
    const auto tokens =
        static_cast<double>(prefill->num_tokens_sent() + decode->num_tokens_sent() - tokens_before);
    std::printf("%8d %10.0f %12.0f %14.1f %16.2f\n", round, tokens, tokens / seconds,
                1e6 * cpu / tokens, static_cast<double>(events) / tokens);
  }
  prefill.reset();
  decode.reset();
  close(router.stdin_fd);
  waitpid(router.pid, nullptr, 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc >= 3 && std::string(argv[1]) == "--router") return RunRouter(argv[2]);
  if (argc < 2 || argc % 2 != 0) {
    std::fprintf(stderr,
                 "usage: gateway_bench MODEL [--streams N] [--tokens N] [--step-ms MS] "
                 "[--rounds N]\n");
    return 2;
  }
  Options options;
  options.model = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--streams") options.streams = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--tokens") options.tokens = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--step-ms") options.step_ms = std::max(0.05, std::atof(argv[i + 1]));
    if (flag == "--rounds") options.rounds = std::max(1, std::atoi(argv[i + 1]));
  }
  return RunBench(argv[0], options);
}
