#include "decode_worker/decode_worker.h"

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "session/session_server.h"
#include "tests/support/golden_engine.h"
#include "tests/support/test_paths.h"

namespace baton::decode_worker {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// A router that knows one worker and keeps what it says.
class FakeRouter {
 public:
  FakeRouter() {
    session::SessionServer::Callbacks callbacks;
    callbacks.on_open = [this](session::SessionId id, const session::Hello& hello) {
      absl::MutexLock lock(&mutex_);
      session_ = id;
      hello_ = hello;
      pending_welcome_ = true;
    };
    callbacks.on_message = [this](session::SessionId, session::WorkerMessage message) {
      absl::MutexLock lock(&mutex_);
      Keep(std::move(message));
    };
    callbacks.on_closed = [](session::SessionId) {};
    auto server =
        session::SessionServer::Start({.listen_address = "127.0.0.1:0"}, std::move(callbacks));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", server_->port()); }

  // Waits for the worker's Hello and answers it.
  bool Welcome() {
    absl::MutexLock lock(&mutex_);
    const auto opened = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pending_welcome_; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&opened), kPatience)) return false;
    server_->Send(session_, session::Welcome{"router", absl::Milliseconds(20), absl::OkStatus()});
    return true;
  }
  session::Hello hello() {
    absl::MutexLock lock(&mutex_);
    return hello_;
  }
  void Send(session::RouterMessage message) {
    absl::MutexLock lock(&mutex_);
    server_->Send(session_, std::move(message));
  }

  // The request's tokens once it is over; fails the test when it takes too long or fails.
  std::vector<std::int32_t> WaitForEnd(const std::string& id) {
    absl::MutexLock lock(&mutex_);
    const auto ended = [this, &id]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return finished_.count(id) > 0 || failed_.count(id) > 0;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&ended), kPatience)) << id;
    EXPECT_EQ(failed_.count(id), 0u) << failed_[id];
    return tokens_[id];
  }
  std::optional<session::TicketGranted> WaitForTicket(const std::string& id) {
    absl::MutexLock lock(&mutex_);
    const auto granted = [this, &id]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return tickets_.count(id) > 0;
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&granted), kPatience)) return std::nullopt;
    return tickets_[id];
  }
  absl::Status WaitForFailure(const std::string& id) {
    absl::MutexLock lock(&mutex_);
    const auto failed = [this, &id]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return failed_.count(id) > 0; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&failed), kPatience)) << id;
    return failed_[id];
  }

 private:
  void Keep(session::WorkerMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (auto* step = std::get_if<session::StepOutputs>(&message)) {
      for (const session::TokenOutput& output : step->outputs) {
        for (const SampledToken& token : output.tokens) {
          tokens_[output.request_id].push_back(token.token);
        }
        if (output.finish != FinishReason::kNone) finished_[output.request_id] = output.finish;
      }
    } else if (auto* ticket = std::get_if<session::TicketGranted>(&message)) {
      tickets_[ticket->request_id] = *ticket;
    } else if (auto* failed = std::get_if<session::RequestFailed>(&message)) {
      failed_[failed->request_id] = failed->status;
    }
  }

  absl::Mutex mutex_;
  session::SessionId session_ ABSL_GUARDED_BY(mutex_) = 0;
  session::Hello hello_ ABSL_GUARDED_BY(mutex_);
  bool pending_welcome_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::vector<std::int32_t>> tokens_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, FinishReason> finished_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, session::TicketGranted> tickets_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Status> failed_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<session::SessionServer> server_;  // last: its callbacks use the rest
};

worker::WorkerConfig Config(const std::string& router_address) {
  worker::WorkerConfig config;
  config.model = baton::testing::ModelsDir() + "/tiny/target";
  config.compute = "f32";
  config.threads = 1;
  config.kv_blocks = 256;
  config.max_num_batched_tokens = 32;
  config.routers = {router_address};
  config.host = "127.0.0.1";
  return config;
}

// A prefill worker without scheduler and sessions: an engine and the sending end of transfers.
class FakePrefill {
 public:
  FakePrefill() {
    auto engine = worker::EngineHost::Create(Config(""));
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    kvtransfer::TransferSender::Options options;
    options.worker_id = "p0";
    options.incarnation = 1;
    options.fingerprint = engine_->fingerprint();
    options.memory = engine_->transfer_memory();
    sender_ = kvtransfer::TransferSender::Create(options, clock_);
  }

  std::uint64_t Begin(const TransferTicket& ticket) {
    auto blocks = engine_->allocator().Allocate(static_cast<int>(ticket.blocks.size()));
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    blocks_ = *std::move(blocks);
    return sender_->Begin(ticket, blocks_.ids(),
                          [](std::uint64_t, const absl::Status&, const kvtransfer::SendReport&) {});
  }
  // Computes the prompt, sends each layer as it is ready, and returns the first token.
  SampledToken Compute(std::uint64_t key, const session::RequestSpec& spec) {
    engine::SequenceStep step;
    step.tokens = spec.prompt;
    step.block_table = blocks_.ids();
    step.sampling = &spec.sampling;
    step.prompt = spec.prompt;
    kvtransfer::HandoffRecord record;
    const absl::Status status = engine_->Step(
        {&step, 1},
        {.on_layer = [&](int layer) { sender_->PutLayer(key, layer, 0, blocks_.size()); },
         .on_token = [&](int, SampledToken token) { record.first_token = std::move(token); }});
    EXPECT_TRUE(status.ok()) << status;
    sender_->Complete(key, record);
    return record.first_token;
  }
  void Abort(std::uint64_t key) { sender_->Abort(key, absl::InternalError("prefill gave up")); }

 private:
  const RealClock clock_;
  std::unique_ptr<worker::EngineHost> engine_;
  engine::BlockList blocks_;
  std::unique_ptr<kvtransfer::TransferSender> sender_;  // last: it reads the blocks
};

class DecodeWorkerTest : public ::testing::Test {
 protected:
  std::unique_ptr<DecodeWorker> StartWorker(session::WorkerRole role) {
    auto started = DecodeWorker::Start(Config(router_.address()), role);
    EXPECT_TRUE(started.ok()) << started.status();
    if (!started.ok()) return nullptr;
    EXPECT_TRUE(router_.Welcome());
    return *std::move(started);
  }

  static session::RequestSpec Spec(const std::string& id, unsigned seed, int prompt_tokens) {
    std::mt19937 random(seed);
    session::RequestSpec spec;
    spec.request_id = id;
    for (int i = 0; i < prompt_tokens; ++i) {
      spec.prompt.push_back(static_cast<std::int32_t>(5 + random() % 4000));
    }
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = 12;
    return spec;
  }

  // What the model says without any worker.
  static std::vector<std::int32_t> Greedy(const session::RequestSpec& spec) {
    baton::testing::EngineSetup setup;
    setup.backend = baton::testing::Backend::kCpu;
    setup.kv_tokens = 1024;
    auto engine =
        baton::testing::GoldenEngine::Create(baton::testing::ModelsDir() + "/tiny/target", setup);
    EXPECT_TRUE(engine.ok()) << engine.status();
    const baton::testing::GoldenEngine::GreedyRequest request{spec.prompt, spec.sampling.max_tokens,
                                                              -1};
    auto outputs = (*engine)->Greedy({&request, 1});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs->front();
  }

  FakeRouter router_;
};

TEST_F(DecodeWorkerTest, ServesARequestWhollyInRoleBoth) {
  const auto started = StartWorker(session::WorkerRole::kBoth);
  ASSERT_NE(started, nullptr);
  const session::RequestSpec spec = Spec("a", 1, 50);

  router_.Send(session::Reserve{spec, /*local_prefill=*/true});

  EXPECT_EQ(router_.WaitForEnd("a"), Greedy(spec));
  EXPECT_EQ(router_.hello().role, session::WorkerRole::kBoth);
  EXPECT_EQ(started->kv_port(), 0);
}

TEST_F(DecodeWorkerTest, RefusesTransfersInRoleBoth) {
  const auto started = StartWorker(session::WorkerRole::kBoth);
  ASSERT_NE(started, nullptr);

  router_.Send(session::Reserve{Spec("a", 1, 20), /*local_prefill=*/false});

  EXPECT_EQ(router_.WaitForFailure("a").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(DecodeWorkerTest, DrainsWhatRunsAndRefusesTheRest) {
  auto started = StartWorker(session::WorkerRole::kBoth);
  ASSERT_NE(started, nullptr);
  router_.Send(session::Reserve{Spec("a", 2, 40), true});
  EXPECT_EQ(router_.WaitForEnd("a").size(), 12u);
  EXPECT_TRUE(started->ready());

  EXPECT_TRUE(started->Drain(absl::Now() + kPatience));
  router_.Send(session::Reserve{Spec("b", 3, 10), true});

  EXPECT_EQ(router_.WaitForFailure("b").code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(started->ready());
  EXPECT_EQ(started->load().blocks.free, started->load().blocks.total);
}

TEST_F(DecodeWorkerTest, GoesOnWhereAPrefillWorkerStopped) {
  for (const std::string transport : {"auto", "grpc"}) {
    SCOPED_TRACE(transport);
    FakeRouter router;
    worker::WorkerConfig config = Config(router.address());
    config.transport = transport;
    auto started = DecodeWorker::Start(config, session::WorkerRole::kDecode);
    ASSERT_TRUE(started.ok()) << started.status();
    ASSERT_TRUE(router.Welcome());
    FakePrefill prefill;
    const session::RequestSpec spec = Spec("a", 4, 30);

    router.Send(session::Reserve{spec, /*local_prefill=*/false});
    const auto granted = router.WaitForTicket("a");
    ASSERT_TRUE(granted.has_value());
    std::vector<std::int32_t> tokens = {
        prefill.Compute(prefill.Begin(granted->ticket), spec).token};
    for (const std::int32_t token : router.WaitForEnd("a")) tokens.push_back(token);

    EXPECT_EQ(tokens, Greedy(spec));
  }
}

TEST_F(DecodeWorkerTest, TellsTheRouterWhenAPrefillWorkerGivesUp) {
  const auto started = StartWorker(session::WorkerRole::kDecode);
  ASSERT_NE(started, nullptr);
  FakePrefill prefill;
  router_.Send(session::Reserve{Spec("a", 4, 30), false});
  const auto granted = router_.WaitForTicket("a");
  ASSERT_TRUE(granted.has_value());

  prefill.Abort(prefill.Begin(granted->ticket));

  EXPECT_EQ(router_.WaitForFailure("a").code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(started->Drain(absl::Now() + kPatience));
  EXPECT_EQ(started->load().blocks.free, started->load().blocks.total);
}

TEST_F(DecodeWorkerTest, RefusesAModelThatIsNotThere) {
  worker::WorkerConfig config;
  config.model = "/no/such/model";
  config.routers = {router_.address()};

  EXPECT_EQ(DecodeWorker::Start(config, session::WorkerRole::kBoth).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace baton::decode_worker
