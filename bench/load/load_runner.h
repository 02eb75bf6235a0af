#pragma once
#include <functional>
#include <string>
#include <vector>

#include "bench/load/bench_config.h"
#include "bench/load/openai_client.h"
#include "bench/load/workload.h"

namespace baton::bench {

// Sends every item of `workload` and returns their results in the same order. Closed loop:
// `config.concurrency` threads take the next item when theirs is answered. Open loop: each item
// goes at its arrival time, or as soon after it as one of 1024 threads is free;
// its latency counts from the time it was due, so that a saturated server is not flattered.
// `on_progress(done)` is called from any of the threads after each answer; may be null.
std::vector<RequestResult> RunLoad(const BenchConfig& config, const Workload& workload,
                                   const std::string& model,
                                   const std::function<void(int done)>& on_progress);

}  // namespace baton::bench
