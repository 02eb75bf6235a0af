#include "bench/load/load_runner.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/time/clock.h"

namespace baton::bench {
namespace {

// Of the open loop, which should never wait for a thread; bounded all the same.
constexpr size_t kMaxInFlight = 1024;

}  // namespace

std::vector<RequestResult> RunLoad(const BenchConfig& config, const Workload& workload,
                                   const std::string& model,
                                   const std::function<void(int done)>& on_progress) {
  std::vector<RequestResult> results(workload.items.size());
  std::atomic<size_t> next{0};
  std::atomic<int> done{0};
  const absl::Time start = absl::Now();
  const auto work = [&] {
    OpenAiClient client(config);
    for (size_t i; (i = next.fetch_add(1)) < workload.items.size();) {
      const WorkItem& item = workload.items[i];
      const absl::Time due = start + item.arrival;
      if (workload.open_loop) absl::SleepFor(due - absl::Now());
      results[i] = client.Run(item, model);
      if (workload.open_loop) results[i].sent = due;
      const int count = done.fetch_add(1) + 1;
      if (on_progress) on_progress(count);
    }
  };
  std::vector<std::thread> threads;
  const size_t num_threads =
      std::min(workload.open_loop ? kMaxInFlight : static_cast<size_t>(config.concurrency),
               workload.items.size());
  for (size_t i = 0; i < num_threads; ++i) threads.emplace_back(work);
  for (auto& thread : threads) thread.join();
  return results;
}

}  // namespace baton::bench
