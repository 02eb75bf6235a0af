#include "prefill_worker/prefill_worker.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "common/clock.h"
#include "engine/sampling/sampler.h"
#include "kvtransfer/transfer.h"
#include "tests/support/fake_router.h"
#include "tests/support/test_paths.h"
#include "worker/engine_host.h"

namespace baton::prefill_worker {
namespace {

constexpr int kNumBlocks = 40;

worker::WorkerConfig TinyConfig() {
  worker::WorkerConfig config;
  config.model = testing::ModelsDir() + "/tiny/draft";
  config.kv_blocks = kNumBlocks;
  config.max_num_batched_tokens = 24;
  config.threads = 1;
  config.host = "127.0.0.1";
  config.worker_id = "p-test";
  return config;
}

// The receiving end of a decode worker: a pool of its own and what was told of its reservations.
class DecodeEnd {
 public:
  explicit DecodeEnd(const worker::WorkerConfig& config) {
    engine_ = *worker::EngineHost::Create(config);
    kvtransfer::TransferReceiver::Options options;
    options.worker_id = "d-test";
    options.incarnation = 5;
    options.fingerprint = engine_->fingerprint();
    options.memory = engine_->transfer_memory();
    options.listen_address = "127.0.0.1:0";
    options.allow_shared_memory = config.transport != "grpc";
    kvtransfer::TransferReceiver::Callbacks callbacks;
    callbacks.on_complete = [this](std::uint64_t, const kvtransfer::HandoffRecord& record,
                                   const kvtransfer::ReceiveReport& report) {
      absl::MutexLock lock(&mutex_);
      records_.push_back(record);
      transport_ = report.transport;
    };
    callbacks.on_failed = [this](std::uint64_t, const absl::Status& status) {
      absl::MutexLock lock(&mutex_);
      failures_.push_back(status);
    };
    receiver_ = *kvtransfer::TransferReceiver::Start(options, callbacks, clock_);
  }

  TransferTicket Reserve(int first_block, int num_tokens) {
    std::vector<std::int32_t> blocks(engine_->layout().BlocksFor(num_tokens));
    std::iota(blocks.begin(), blocks.end(), first_block);
    return receiver_->Reserve(blocks, num_tokens);
  }
  bool WaitFor(std::size_t records, std::size_t failures) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&] { return records_.size() >= records && failures_.size() >= failures; };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
  }
  std::vector<kvtransfer::HandoffRecord> records() {
    absl::MutexLock lock(&mutex_);
    return records_;
  }
  std::string transport() {
    absl::MutexLock lock(&mutex_);
    return transport_;
  }
  worker::EngineHost& engine() { return *engine_; }

 private:
  RealClock clock_;
  absl::Mutex mutex_;
  std::vector<kvtransfer::HandoffRecord> records_;
  std::vector<absl::Status> failures_;
  std::string transport_;
  std::unique_ptr<worker::EngineHost> engine_;
  std::unique_ptr<kvtransfer::TransferReceiver> receiver_;
};

session::Prefill MakePrefill(const std::string& id, int num_tokens, const TransferTicket& ticket) {
  session::Prefill prefill;
  prefill.spec.request_id = id;
  for (int i = 0; i < num_tokens; ++i) prefill.spec.prompt.push_back((i * 31 + 5) % 400);
  prefill.spec.sampling.temperature = 0;
  prefill.ticket = ticket;
  return prefill;
}

// The prompt computed in one step by `engine` into blocks [first_block, ...); the greedy token.
std::int32_t ComputeAlone(worker::EngineHost& engine, const std::vector<std::int32_t>& prompt,
                          int first_block) {
  std::vector<engine::BlockId> table(engine.layout().BlocksFor(static_cast<int>(prompt.size())));
  std::iota(table.begin(), table.end(), first_block);
  SamplingParams greedy;
  greedy.temperature = 0;
  const std::vector<engine::SequenceStep> steps = {
      {.tokens = prompt, .block_table = table, .sampling = &greedy, .prompt = prompt}};
  std::int32_t token = -1;
  const absl::Status status =
      engine.Step(steps, {.on_token = [&](int, SampledToken sampled) { token = sampled.token; }});
  EXPECT_TRUE(status.ok()) << status;
  return token;
}

// Whether `num_tokens` tokens of K and V are the same, bit for bit, in blocks from `a` and from
// `b`.
bool SameKv(worker::EngineHost& engine, int a, int b, int num_tokens) {
  const engine::KvLayout& layout = engine.layout();
  const std::size_t row = layout.element_bytes() * layout.head_dim;
  const kvtransfer::KvMemory memory = engine.transfer_memory();
  const auto block_at = [&](int layer, int block) {
    return memory.ranks[0].layers[layer] + block * memory.ranks[0].block_bytes;
  };
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    for (int token = 0; token < num_tokens; ++token) {
      const std::byte* left = block_at(layer, a + token / layout.block_size);
      const std::byte* right = block_at(layer, b + token / layout.block_size);
      for (int head = 0; head < 2 * layout.num_kv_heads; ++head) {  // K's heads, then V's
        const std::size_t at = (head * layout.block_size + token % layout.block_size) * row;
        if (std::memcmp(left + at, right + at, row) != 0) return false;
      }
    }
  }
  return true;
}

template <class Message>
std::size_t Count(const std::vector<session::WorkerMessage>& messages) {
  std::size_t count = 0;
  for (const auto& message : messages) count += std::holds_alternative<Message>(message) ? 1 : 0;
  return count;
}

template <class Message>
Message First(const std::vector<session::WorkerMessage>& messages) {
  for (const auto& message : messages) {
    if (const auto* found = std::get_if<Message>(&message)) return *found;
  }
  return Message();
}

class PrefillWorkerTest : public ::testing::TestWithParam<const char*> {
 protected:
  PrefillWorkerTest() : config_(TinyConfig()) {
    config_.transport = GetParam();
    config_.routers = {router_.address()};
    worker::WorkerConfig decode_config = config_;
    decode_config.max_num_batched_tokens = 512;  // the judge computes prompts whole
    decode_ = std::make_unique<DecodeEnd>(decode_config);
    auto started = PrefillWorker::Start(config_);
    EXPECT_TRUE(started.ok()) << started.status();
    worker_ = *std::move(started);
    EXPECT_TRUE(router_.Wait([](const auto& seen) { return seen.hellos.size() == 1; }));
  }
  template <class Message>
  bool WaitForRouter(std::size_t count) {
    return router_.Wait(
        [count](const auto& seen) { return Count<Message>(seen.messages) >= count; });
  }

  FakeRouter router_;
  worker::WorkerConfig config_;
  std::unique_ptr<DecodeEnd> decode_;
  std::unique_ptr<PrefillWorker> worker_;
};

TEST_P(PrefillWorkerTest, HandsOverTheBlocksThatThePromptComputedWholeHas) {
  constexpr int kTokens = 100;  // five chunks of 24, the last block partial
  const session::Prefill prefill = MakePrefill("r", kTokens, decode_->Reserve(0, kTokens));

  router_.Send(prefill);

  ASSERT_TRUE(WaitForRouter<session::TransferReport>(1));
  ASSERT_TRUE(decode_->WaitFor(/*records=*/1, /*failures=*/0));
  const std::int32_t expected = ComputeAlone(decode_->engine(), prefill.spec.prompt, 20);
  EXPECT_TRUE(SameKv(decode_->engine(), 0, 20, kTokens));
  EXPECT_EQ(decode_->records()[0].first_token.token, expected);
  EXPECT_EQ(decode_->transport(), std::string(GetParam()));
  const auto step = First<session::StepOutputs>(router_.messages());
  ASSERT_EQ(step.outputs.size(), 1u);
  EXPECT_EQ(step.outputs[0].tokens.at(0).token, expected);
}

TEST_P(PrefillWorkerTest, ReportsWhenEachLayerWasComputedAndSent) {
  constexpr int kTokens = 24;  // one step
  router_.Send(MakePrefill("r", kTokens, decode_->Reserve(0, kTokens)));

  ASSERT_TRUE(WaitForRouter<session::TransferReport>(1));

  const auto times = First<session::TransferReport>(router_.messages()).times;
  ASSERT_EQ(static_cast<int>(times.layers.size()), decode_->engine().num_layers());
  for (std::size_t layer = 0; layer + 1 < times.layers.size(); ++layer) {
    EXPECT_LT(times.layers[layer].computed, times.layers[layer + 1].computed) << layer;
    EXPECT_LE(times.layers[layer].computed, times.layers[layer].sent) << layer;
  }
  EXPECT_GT(times.transfer_bytes, 0);
  EXPECT_GE(times.prefill_compute, times.layers.back().computed);
}

TEST_P(PrefillWorkerTest, SeveralPromptsAtOnceGiveWhatEachGivesAlone) {
  const std::vector<int> lengths = {3, 16, 40, 77};
  int block = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    router_.Send(
        MakePrefill(absl::StrCat("r", i), lengths[i], decode_->Reserve(block, lengths[i])));
    block += decode_->engine().layout().BlocksFor(lengths[i]);
  }

  ASSERT_TRUE(WaitForRouter<session::TransferReport>(lengths.size()));
  ASSERT_TRUE(decode_->WaitFor(lengths.size(), 0));
  block = 0;
  for (const int length : lengths) {
    ComputeAlone(decode_->engine(), MakePrefill("", length, {}).spec.prompt, 30);
    EXPECT_TRUE(SameKv(decode_->engine(), block, 30, length)) << length;
    block += decode_->engine().layout().BlocksFor(length);
  }
}

TEST_P(PrefillWorkerTest, AnUnreachableDecodeWorkerFailsTheRequestAndFreesItsBlocks) {
  TransferTicket ticket = decode_->Reserve(0, 20);
  ticket.address = "127.0.0.1:1";

  router_.Send(MakePrefill("r", 20, ticket));

  ASSERT_TRUE(WaitForRouter<session::RequestFailed>(1));
  EXPECT_EQ(First<session::RequestFailed>(router_.messages()).status.code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(router_.Wait([](const auto& seen) {
    return seen.load.blocks.free == kNumBlocks && seen.load.running == 0;
  }));
}

TEST_P(PrefillWorkerTest, ACancelFreesBothSides) {
  const session::Prefill prefill = MakePrefill("r", 200, decode_->Reserve(0, 200));
  router_.Send(prefill);
  router_.Send(session::Cancel{"r"});

  EXPECT_TRUE(router_.Wait([](const auto& seen) {
    return seen.load.blocks.total == kNumBlocks && seen.load.blocks.free == kNumBlocks;
  }));
  // Handed over before the cancel came, or the decode worker was told.
  EXPECT_EQ(Count<session::RequestFailed>(router_.messages()), 0u);
}

TEST_P(PrefillWorkerTest, ADrainFinishesWhatRunsAndRefusesTheRest) {
  constexpr int kTokens = 120;
  router_.Send(MakePrefill("old", kTokens, decode_->Reserve(0, kTokens)));
  ASSERT_TRUE(router_.Wait([](const auto& seen) {
    return seen.load.running + seen.load.waiting > 0 || !seen.messages.empty();
  }));

  EXPECT_TRUE(worker_->Drain(absl::Now() + absl::Seconds(20)));

  ASSERT_TRUE(WaitForRouter<session::TransferReport>(1));
  router_.Send(MakePrefill("new", 10, decode_->Reserve(20, 10)));
  ASSERT_TRUE(WaitForRouter<session::RequestFailed>(1));
  EXPECT_EQ(First<session::RequestFailed>(router_.messages()).status.code(),
            absl::StatusCode::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(Transports, PrefillWorkerTest, ::testing::Values("shm", "grpc"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace baton::prefill_worker
