// Nothing lost, nothing leaked: cancels and deaths at any moment leave balanced books.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/support/completions.h"

namespace baton::testing {
namespace {

using nlohmann::json;

json StreamBody(int prompt_tokens, int max_tokens, unsigned seed) {
  std::vector<int> prompt;
  std::mt19937 random(seed);
  for (int i = 0; i < prompt_tokens; ++i) prompt.push_back(300 + static_cast<int>(random() % 3000));
  return {{"prompt", prompt},   {"max_tokens", max_tokens},
          {"ignore_eos", true}, {"temperature", 1.0},
          {"seed", seed},       {"stream", true}};
}

// Resident bytes of a process.
double ResidentKiB(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmRSS:", 0) == 0) {
      const std::vector<std::string> parts = absl::StrSplit(line, ' ', absl::SkipWhitespace());
      double value = 0;
      if (parts.size() > 1 && absl::SimpleAtod(parts[1], &value)) return value;
    }
  }
  return 0;
}

// Sends `count` streams from `threads` threads; a random half hang up after a random share of the
// bytes. Returns how many of those that stayed came to their end.
int StreamWithCancels(const LocalCluster& cluster, int count, int threads, unsigned seed) {
  std::atomic<int> next{0}, finished{0};
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      for (int i; (i = next.fetch_add(1)) < count;) {
        std::mt19937 random(seed + static_cast<unsigned>(i));
        const bool cancel = random() % 2 == 0;
        HttpClient client(cluster.http_port(), absl::Seconds(120));
        const int prompt_tokens = 1 + static_cast<int>(random() % 120);
        const json body = StreamBody(prompt_tokens, 1 + static_cast<int>(random() % 24), random());
        if (!client.Send("POST", "/v1/completions", body.dump())) continue;
        if (cancel) {
          // Some at once, some after some tokens: every phase is hit.
          for (unsigned events = random() % 6; events > 0; --events) {
            const auto event = client.ReadUntil("\n\n");
            if (!event.ok() || event->find("[DONE]") != std::string::npos) break;
          }
          client.Close();
        } else {
          const auto result = client.ReadResult();
          if (result.ok() && result->status == 200 &&
              result->body.find("data: [DONE]") != std::string::npos) {
            ++finished;
          } else {
            ADD_FAILURE() << "request " << i << ": "
                          << (result.ok() ? result->body : result.status().ToString());
          }
        }
      }
    });
  }
  for (auto& thread : pool) thread.join();
  return finished;
}

TEST(FaultsTest, AThousandRequestsOfWhichHalfAreCancelledLeakNothing) {
  const auto cluster = LocalCluster::Start(TinyModelPath(), {"--kv-blocks=512"});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::vector<std::string> workers = {"prefill-0", "decode-0"};
  StreamWithCancels(**cluster, 300, 12, 1);  // pools, caches and buffers reach their size
  ASSERT_TRUE(BooksAreBalancedAndIdle(**cluster, workers));
  std::map<std::string, double> before;
  for (const char* process : {"router", "prefill-0", "decode-0"}) {
    before[process] = ResidentKiB((*cluster)->Pid(process));
  }

  StreamWithCancels(**cluster, 1000, 12, 1000);

  EXPECT_TRUE(BooksAreBalancedAndIdle(**cluster, workers));
  for (const auto& [process, kib] : before) {
    const double now = ResidentKiB((*cluster)->Pid(process));
    ASSERT_GT(kib, 0) << process;
    EXPECT_LT(now, kib * 1.1 + 8 * 1024) << process << " grew from " << kib << " KiB";
  }
}

// Kills `victim` with -9 while streams run, and expects: streams end (with an error event or
// [DONE]), none hangs, the supervisor brings the worker back, new requests are answered, the
// survivors' books balance.
void KillDuringRequests(const std::string& victim, const std::vector<std::string>& flags = {}) {
  SCOPED_TRACE("kill " + victim);
  const auto started = LocalCluster::Start(TinyModelPath(), flags);
  ASSERT_TRUE(started.ok()) << started.status();
  const LocalCluster& cluster = **started;
  const pid_t pid = cluster.Pid(victim);
  ASSERT_GT(pid, 0);
  std::atomic<int> streaming{0}, ended{0}, errors{0}, hung{0};
  std::vector<std::thread> threads;
  constexpr int kStreams = 8;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      HttpClient client(cluster.http_port(), absl::Seconds(60));
      client.Send("POST", "/v1/completions", StreamBody(200, 700, static_cast<unsigned>(i)).dump());
      const auto head = client.ReadUntil("\r\n\r\n");
      if (head.ok() && head->find(" 200 ") == std::string::npos) {
        ++errors;  // it failed before its first token
        return;
      }
      if (client.ReadUntil("\n\n").ok()) ++streaming;
      const auto rest = client.ReadUntil("0\r\n\r\n");
      if (!rest.ok()) {
        ++hung;
      } else if (rest->find("\"error\"") != std::string::npos) {
        ++errors;
      } else if (rest->find("[DONE]") != std::string::npos) {
        ++ended;
      }
    });
  }
  ASSERT_TRUE(WaitFor([&] { return streaming >= 2; }));

  ASSERT_EQ(kill(pid, SIGKILL), 0);
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(hung, 0);
  EXPECT_EQ(ended + errors, kStreams);
  if (victim == "decode-0") {
    EXPECT_GT(errors, 0) << "a stream went on without its worker";
  }
  ASSERT_TRUE(WaitFor([&] {
    const pid_t now = cluster.Pid(victim);
    return now != 0 && now != pid;
  })) << victim
      << " was not restarted";
  ASSERT_TRUE(WaitFor([&] {
    const auto ready = cluster.Get("/ready");
    return ready.ok() && ready->status == 200;
  }));
  const auto answer = Complete(cluster, {300, 301, 302}, GreedyOptions(4));
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(BooksAreBalancedAndIdle(cluster, {"prefill-0", "decode-0"}));
}

TEST(FaultsTest, ADeadDecodeWorkerFailsItsRequestsAndComesBack) { KillDuringRequests("decode-0"); }
TEST(FaultsTest, ADeadPrefillWorkerFailsItsRequestsAndComesBack) {
  KillDuringRequests("prefill-0");
}
TEST(FaultsTest, DeadGroupsOfRanksFailTheirRequestsAndComeBack) {
  KillDuringRequests("decode-0", {"--decode-tp=2"});
  KillDuringRequests("prefill-0", {"--prefill-tp=2"});
}

TEST(FaultsTest, ADeadRouterFreesWhatTheWorkersHeld) {
  const auto started = LocalCluster::Start(TinyModelPath());
  ASSERT_TRUE(started.ok()) << started.status();
  const LocalCluster& cluster = **started;
  const pid_t pid = cluster.Pid("router");
  HttpClient client(cluster.http_port(), absl::Seconds(60));
  client.Send("POST", "/v1/completions", StreamBody(200, 700, 1).dump());
  ASSERT_TRUE(client.ReadUntil("\n\n").ok());

  ASSERT_EQ(kill(pid, SIGKILL), 0);

  EXPECT_TRUE(BooksAreBalancedAndIdle(cluster, {"prefill-0", "decode-0"}));
  ASSERT_TRUE(WaitFor([&] {
    const auto ready = cluster.Get("/ready");
    return ready.ok() && ready->status == 200;
  })) << "workers did not register with the restarted router";
  const auto answer = Complete(cluster, {300, 301, 302}, GreedyOptions(4));
  EXPECT_TRUE(answer.ok()) << answer.status();
}

TEST(FaultsTest, AClientThatGoesAwayFreesItsBlocksWithinASecond) {
  const auto started = LocalCluster::Start(TinyModelPath());
  ASSERT_TRUE(started.ok()) << started.status();
  HttpClient client((*started)->http_port());
  client.Send("POST", "/v1/completions", StreamBody(100, 900, 1).dump());
  ASSERT_TRUE(client.ReadUntil("\n\n").ok());
  ASSERT_TRUE(WaitFor(
      [&] { return (*started)->Metric("decode-0", "baton_kv_blocks{state=\"active\"}") > 0; }));

  client.Close();

  EXPECT_TRUE(WaitFor(
      [&] { return (*started)->Metric("decode-0", "baton_kv_blocks{state=\"active\"}") == 0; },
      absl::Seconds(1)));
}

}  // namespace
}  // namespace baton::testing
