// The scheduler under its real engine thread, with routers, prefill workers and transfers on
// threads of their own: what TSan watches.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/bounded_queue.h"
#include "decode_worker/decode_scheduler.h"
#include "decode_worker/request_journal.h"
#include "gtest/gtest.h"
#include "tests/support/fake_step_model.h"
#include "worker/step_loop.h"

namespace baton::decode_worker {
namespace {

constexpr int kVocab = 48;
constexpr int kBlocks = 48;
constexpr int kBlockSize = 4;
constexpr absl::Duration kPatience = absl::Seconds(100);

// Copies prompts into reserved blocks on a thread of its own, as a transfer does.
class ThreadedReceiver final : public kvtransfer::TransferReceiver {
 public:
  struct Job {
    std::uint64_t transfer_id = 0;
    std::vector<std::int32_t> prompt;
    SampledToken first_token;
  };

  explicit ThreadedReceiver(FakeStepModel& model) : model_(model), jobs_(4096) {}
  ~ThreadedReceiver() override { Stop(); }

  void Start(worker::StepLoop& loop) {
    thread_ = std::thread([this, &loop] {
      while (std::optional<Job> job = jobs_.Pop(absl::InfiniteFuture())) Copy(*job, loop);
    });
  }
  void Stop() {
    jobs_.Close();
    if (thread_.joinable()) thread_.join();
  }
  void Push(Job job) { jobs_.TryPush(std::move(job)); }

  TransferTicket Reserve(std::vector<std::int32_t> blocks, int num_tokens) override {
    absl::MutexLock lock(&mutex_);
    TransferTicket ticket;
    ticket.transfer_id = ++last_id_;
    ticket.num_tokens = num_tokens;
    open_[ticket.transfer_id] = std::move(blocks);
    return ticket;
  }
  void Release(std::uint64_t transfer_id) override {
    absl::MutexLock lock(&mutex_);
    open_.erase(transfer_id);
  }
  int port() const override { return 1; }

 private:
  void Copy(const Job& job, worker::StepLoop& loop) {
    {
      absl::MutexLock lock(&mutex_);
      const auto open = open_.find(job.transfer_id);
      if (open == open_.end()) return;
      model_.Write(open->second, 0, job.prompt, static_cast<int>(job.prompt.size()));
      open_.erase(open);
    }
    worker::ReceiveDone done;
    done.transfer_id = job.transfer_id;
    done.record.first_token = job.first_token;
    done.report.completed = absl::Now();
    loop.Post(std::move(done));
  }

  FakeStepModel& model_;
  BoundedQueue<Job> jobs_;
  absl::Mutex mutex_;
  std::map<std::uint64_t, std::vector<std::int32_t>> open_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

// All routers' memory: what was asked, and what came.
class Routers final : public worker::Outbox {
 public:
  explicit Routers(ThreadedReceiver& receiver) : receiver_(receiver) {}

  void Ask(const session::RequestSpec& spec) {
    std::vector<SampledToken> alone =
        FakeStepModel::OutputAlone(spec.sampling, spec.prompt, kVocab, kBlocks * kBlockSize);
    absl::MutexLock lock(&mutex_);
    alone_[spec.request_id] = std::move(alone);
    prompts_[spec.request_id] = spec.prompt;
  }
  void Send(worker::SessionKey, session::WorkerMessage message) override {
    absl::MutexLock lock(&mutex_);
    if (const auto* granted = std::get_if<session::TicketGranted>(&message)) {
      const SampledToken first = alone_[granted->request_id].front();
      tokens_[granted->request_id].push_back(first.token);
      receiver_.Push({granted->ticket.transfer_id, prompts_[granted->request_id], first});
    } else if (const auto* failed = std::get_if<session::RequestFailed>(&message)) {
      ADD_FAILURE() << failed->request_id << ": " << failed->status;
    } else if (const auto* step = std::get_if<session::StepOutputs>(&message)) {
      for (const session::TokenOutput& output : step->outputs) Keep(output);
    }
  }

  // Expects of each request the tokens it gives alone, or their beginning when it was cancelled.
  void Judge(const std::set<std::string>& cancelled) {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, alone] : alone_) {
      const std::vector<std::int32_t>& tokens = tokens_[id];
      ASSERT_LE(tokens.size(), alone.size()) << id;
      if (cancelled.count(id) == 0) {
        EXPECT_EQ(tokens.size(), alone.size()) << id;
      }
      for (std::size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], alone[i].token) << id;
    }
  }

 private:
  void Keep(const session::TokenOutput& output) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const SampledToken& token : output.tokens) {
      tokens_[output.request_id].push_back(token.token);
    }
  }

  ThreadedReceiver& receiver_;
  absl::Mutex mutex_;
  std::map<std::string, std::vector<SampledToken>> alone_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<std::int32_t>> prompts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<std::int32_t>> tokens_ ABSL_GUARDED_BY(mutex_);
};

DecodeLimits LoopLimits() {
  DecodeLimits limits;
  limits.block_size = kBlockSize;
  limits.num_blocks = kBlocks;
  limits.vocab_size = kVocab;
  limits.max_context = 4096;
  limits.max_num_seqs = 6;
  limits.max_num_batched_tokens = 16;
  limits.max_waiting = 4096;
  limits.max_queue_wait = kPatience;
  return limits;
}

session::RequestSpec RandomSpec(const std::string& id, std::mt19937& random) {
  session::RequestSpec spec;
  spec.request_id = id;
  for (int size = 1 + static_cast<int>(random() % 40); size > 0; --size) {
    spec.prompt.push_back(static_cast<std::int32_t>(random() % kVocab));
  }
  spec.sampling.seed = random();
  spec.sampling.max_tokens = 2 + static_cast<std::int32_t>(random() % 30);
  return spec;
}

TEST(DecodeLoopTest, ServesRoutersOnTheirOwnThreads) {
  const DecodeLimits limits = LoopLimits();
  const RealClock clock;
  metrics::Registry registry;
  worker::WorkerMetrics worker_metrics(registry);
  DecodeMetrics decode_metrics(registry);
  worker::TimelineStore timelines(64);
  RequestJournal journal(worker_metrics, decode_metrics, timelines);
  engine::BlockAllocator allocator(kBlocks);
  FakeStepModel model(kBlocks, kBlockSize, kVocab, limits.max_num_batched_tokens);
  ThreadedReceiver receiver(model);
  Routers routers(receiver);
  DecodeScheduler scheduler(limits, {&clock, &allocator, &routers, &journal, &receiver});
  worker::StepLoop loop({}, model, worker_metrics, clock);
  std::set<std::string> cancelled;
  absl::Mutex cancelled_mutex;

  receiver.Start(loop);
  loop.Start(scheduler);
  std::vector<std::thread> threads;
  for (int link = 0; link < 3; ++link) {
    threads.emplace_back([&, link] {
      std::mt19937 random(static_cast<unsigned>(link));
      const worker::SessionKey session{link, 1};
      for (int i = 0; i < 60; ++i) {
        const std::string id = absl::StrCat("r", link, "-", i);
        session::RequestSpec spec = RandomSpec(id, random);
        routers.Ask(spec);
        loop.Post(worker::RouterEvent{session, session::Reserve{std::move(spec), random() % 2 == 0},
                                      clock.Now()});
        if (random() % 3 != 0) continue;
        loop.Post(worker::RouterEvent{session, session::Cancel{id}, clock.Now()});
        absl::MutexLock lock(&cancelled_mutex);
        cancelled.insert(id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(loop.WaitUntilIdle(clock.Now() + kPatience));
  loop.Stop();
  receiver.Stop();

  routers.Judge(cancelled);
  EXPECT_TRUE(scheduler.CheckBooks().ok()) << scheduler.CheckBooks();
  EXPECT_EQ(allocator.num_used(), 0);
  EXPECT_GT(worker_metrics.output_tokens.value(), 0);
  EXPECT_EQ(loop.load().blocks.free, kBlocks);
}

}  // namespace
}  // namespace baton::decode_worker
