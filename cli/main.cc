#include <sys/prctl.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cli/command.h"

namespace {

constexpr baton::cli::Command kCommands[] = {
    {"serve", "start a whole cluster on this machine: router, prefill and decode workers",
     baton::cli::RunServe},
    {"router", "start a router: the HTTP and gRPC doors", baton::cli::RunRouter},
    {"prefill", "start a prefill worker", baton::cli::RunPrefill},
    {"decode", "start a decode worker (--role both also computes prompts)", baton::cli::RunDecode},
    {"chat", "send one message to a running cluster and show the answer and its times",
     baton::cli::RunChat},
    {"ready", "exit with 0 when a cluster can take requests", baton::cli::RunReady},
    {"bench", "put load on an OpenAI-compatible endpoint and report latencies",
     baton::cli::RunBench},
    {"inspect", "show a model file: architecture, sizes, what fits in memory",
     baton::cli::RunInspect},
    {"config-docs", "print docs/config.md from the declared settings", baton::cli::RunConfigDocs},
};

void PrintUsage(FILE* out) {
  std::fprintf(out,
               "baton: a prefill/decode serving cluster for large language models\n\n"
               "usage: baton COMMAND [--SETTING VALUE ...]\n\n");
  for (const auto& command : kCommands) {
    std::fprintf(out, "  %-12s %s\n", command.name, command.summary);
  }
  std::fprintf(out,
               "  %-12s print the version\n\nbaton COMMAND --help lists a command's settings.\n",
               "version");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    PrintUsage(stderr);
    return 2;
  }
  const char* const name = argv[1];
  if (std::strcmp(name, "--help") == 0 || std::strcmp(name, "-h") == 0 ||
      std::strcmp(name, "help") == 0) {
    PrintUsage(stdout);
    return 0;
  }
  if (std::strcmp(name, "--version") == 0 || std::strcmp(name, "version") == 0) {
    std::printf("baton %s\n", BATON_VERSION);
    return 0;
  }
  for (const auto& command : kCommands) {
    if (std::strcmp(name, command.name) != 0) continue;
    // Children are started through /proc/self/exe; ps and top should tell them apart.
    prctl(PR_SET_NAME, (std::string("baton-") + name).substr(0, 15).c_str());
    return command.run({argv + 2, argv + argc});
  }
  std::fprintf(stderr, "baton: unknown command %s\n\n", name);
  PrintUsage(stderr);
  return 2;
}
