#include <cstdio>

#include "bench/load/bench_config.h"
#include "cli/command.h"
#include "cli/config/loader.h"
#include "cli/process_config.h"
#include "cli/serve/serve_config.h"

namespace baton::cli {
namespace {

template <class Config>
void PrintTable(const char* title, const char* text) {
  Config config;
  std::printf("\n## %s\n%s\n\n%s", title, text, MarkdownTable(CollectSettings(config)).c_str());
}

}  // namespace

int RunConfigDocs(const std::vector<std::string>&) {
  std::printf(
      "# Settings\n\n"
      "Made by `baton config-docs`; a test fails when it is stale. Every setting can be given as "
      "a\n"
      "flag (`--block-size 16`), in the environment (`BATON_BLOCK_SIZE=16`) or in one YAML file "
      "named\n"
      "by `--config FILE` (`block-size: 16`); a flag goes over the environment, the environment "
      "over\n"
      "the file. Absent means the default; wrong values and unknown names are errors. Sizes take\n"
      "suffixes (`512M`, `2GiB`), durations units (`250ms`, `10s`).\n");
  PrintTable<ServeConfig>("baton serve",
                          "Passes what it is given on to the processes that know the setting.");
  PrintTable<RouterProcessConfig>("baton router", "");
  PrintTable<worker::WorkerConfig>("baton prefill, baton decode",
                                   "`baton decode` also has `role` (`decode` or `both`).");
  PrintTable<bench::BenchConfig>("baton bench", "");
  return 0;
}

}  // namespace baton::cli
