#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "session/session_server.h"
#include "session/worker_link.h"

namespace baton::session {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

Hello TestHello(const std::string& worker_id) {
  Hello hello;
  hello.worker_id = worker_id;
  hello.incarnation = 7;
  hello.role = WorkerRole::kPrefill;
  hello.fingerprint = {"abc", "fast", "f16", 2, 1, 8, {}};
  hello.cut = {.block_size = 16};
  hello.vocab_size = 100;
  hello.max_context = 64;
  hello.max_sequences = 4;
  hello.num_blocks = 10;
  return hello;
}

// A router that welcomes every worker and writes down what happens.
class TestRouter {
 public:
  explicit TestRouter(int port = 0, Welcome welcome = {"router", absl::Milliseconds(20), {}},
                      int max_pending = 4096) {
    SessionServer::Callbacks callbacks;
    callbacks.on_open = [this, welcome](SessionId id, const Hello& hello) {
      WaitForServer();
      server_->Send(id, welcome);
      absl::MutexLock lock(&mutex_);
      opened_.emplace_back(id, hello.worker_id);
      ++open_;
    };
    callbacks.on_message = [this](SessionId id, WorkerMessage message) {
      absl::MutexLock lock(&mutex_);
      if (std::holds_alternative<Heartbeat>(message)) {
        ++heartbeats_;
      } else {
        messages_.emplace_back(id, std::move(message));
      }
    };
    callbacks.on_closed = [this](SessionId) {
      absl::MutexLock lock(&mutex_);
      --open_;
      ++closed_;
    };
    auto server = SessionServer::Start({absl::StrCat("127.0.0.1:", port), max_pending}, callbacks);
    EXPECT_TRUE(server.ok()) << server.status();
    absl::MutexLock lock(&mutex_);
    server_ = *std::move(server);
  }
  ~TestRouter() { server_.reset(); }

  SessionServer& server() { return *server_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", server_->port()); }

  bool Wait(const std::function<bool()>& condition) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&condition), kPatience);
  }
  // For use inside Wait's condition or when nothing else runs.
  std::vector<std::pair<SessionId, std::string>> opened_;
  std::vector<std::pair<SessionId, WorkerMessage>> messages_;
  int open_ = 0;
  int closed_ = 0;
  int heartbeats_ = 0;

 private:
  // A worker that redials may be there before Start returns.
  void WaitForServer() {
    absl::MutexLock lock(&mutex_);
    const auto set = [this] { return server_ != nullptr; };
    mutex_.Await(absl::Condition(&set));
  }
  absl::Mutex mutex_;
  std::unique_ptr<SessionServer> server_;
};

// A worker's link that writes down what happens.
class TestWorker {
 public:
  explicit TestWorker(const std::string& router, const std::string& id = "w0",
                      int max_pending = 4096) {
    WorkerLink::Options options;
    options.router_address = router;
    options.hello = TestHello(id);
    options.max_pending = max_pending;
    WorkerLink::Callbacks callbacks;
    callbacks.on_connected = [this](int session, const Welcome& welcome) {
      absl::MutexLock lock(&mutex_);
      session_ = session;
      welcomes_.push_back(welcome);
    };
    callbacks.on_message = [this](int session, RouterMessage message) {
      absl::MutexLock lock(&mutex_);
      messages_.emplace_back(session, std::move(message));
    };
    callbacks.on_disconnected = [this](int) {
      absl::MutexLock lock(&mutex_);
      ++disconnects_;
    };
    callbacks.load = [] {
      WorkerLoad load;
      load.running = 3;
      return load;
    };
    link_ = WorkerLink::Start(options, callbacks);
  }
  ~TestWorker() { link_.reset(); }

  WorkerLink& link() { return *link_; }
  void Destroy() { link_.reset(); }
  bool Wait(const std::function<bool()>& condition) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&condition), kPatience);
  }
  bool WaitConnected(std::size_t times = 1) {
    return Wait([this, times] { return welcomes_.size() >= times; });
  }
  int session() {
    absl::MutexLock lock(&mutex_);
    return session_;
  }
  int session_ = 0;
  std::vector<Welcome> welcomes_;
  std::vector<std::pair<int, RouterMessage>> messages_;
  int disconnects_ = 0;

 private:
  absl::Mutex mutex_;
  std::unique_ptr<WorkerLink> link_;
};

TEST(SessionTest, OpensWithHelloAndWelcome) {
  TestRouter router;
  TestWorker worker(router.address(), "w7");

  ASSERT_TRUE(worker.WaitConnected());

  EXPECT_EQ(worker.welcomes_[0].router_id, "router");
  ASSERT_TRUE(router.Wait([&] { return router.opened_.size() == 1; }));
  EXPECT_EQ(router.opened_[0].second, "w7");
  EXPECT_TRUE(worker.link().connected());
}

TEST(SessionTest, HeartbeatsComeAtTheIntervalOfTheWelcome) {
  TestRouter router;
  TestWorker worker(router.address());

  EXPECT_TRUE(router.Wait([&] { return router.heartbeats_ >= 5; }));
}

TEST(SessionTest, CarriesMessagesBothWaysInOrder) {
  TestRouter router;
  TestWorker worker(router.address());
  ASSERT_TRUE(worker.WaitConnected());
  ASSERT_TRUE(router.Wait([&] { return router.opened_.size() == 1; }));

  for (int i = 0; i < 500; ++i) {
    worker.link().Send(worker.session(), ReserveQueued{absl::StrCat("r", i), i});
    router.server().Send(router.opened_[0].first, Cancel{absl::StrCat("c", i)});
  }

  ASSERT_TRUE(router.Wait([&] { return router.messages_.size() == 500; }));
  ASSERT_TRUE(worker.Wait([&] { return worker.messages_.size() == 500; }));
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(std::get<ReserveQueued>(router.messages_[i].second).place, i);
    EXPECT_EQ(std::get<Cancel>(worker.messages_[i].second).request_id, absl::StrCat("c", i));
  }
}

TEST(SessionTest, CarriesMessagesBeyondGrpcsDefaultLimit) {
  TestRouter router;
  TestWorker worker(router.address());
  ASSERT_TRUE(worker.WaitConnected());
  TokenOutput output;
  output.request_id = "long";
  output.prompt_logprobs.resize(400'000, SampledToken{1, -1.0f, {{1, -1.0f}}});

  worker.link().Send(worker.session(), StepOutputs{{output}});

  ASSERT_TRUE(router.Wait([&] { return router.messages_.size() == 1; }));
  EXPECT_TRUE(std::get<StepOutputs>(router.messages_[0].second).outputs[0] == output);
}

TEST(SessionTest, DeliversWhatWasSentBeforeTheLinkIsDestroyed) {
  TestRouter router;
  TestWorker worker(router.address());
  ASSERT_TRUE(worker.WaitConnected());

  for (int i = 0; i < 200; ++i) worker.link().Send(worker.session(), ReserveQueued{"last", i});
  worker.Destroy();

  EXPECT_TRUE(router.Wait([&] { return router.messages_.size() == 200; }));
  EXPECT_TRUE(router.Wait([&] { return router.closed_ == 1; }));
  EXPECT_EQ(worker.disconnects_, 1);
}

TEST(SessionTest, RouterSeesAWorkerThatLeaves) {
  TestRouter router;
  auto worker = std::make_unique<TestWorker>(router.address());
  ASSERT_TRUE(worker->WaitConnected());

  worker.reset();

  EXPECT_TRUE(router.Wait([&] { return router.closed_ == 1 && router.open_ == 0; }));
}

TEST(SessionTest, WorkerRedialsAfterTheRouterCloses) {
  TestRouter router;
  TestWorker worker(router.address());
  ASSERT_TRUE(worker.WaitConnected());
  ASSERT_TRUE(router.Wait([&] { return router.opened_.size() == 1; }));
  const int first = worker.session();

  router.server().Close(router.opened_[0].first);

  ASSERT_TRUE(worker.WaitConnected(2));
  EXPECT_EQ(worker.disconnects_, 1);
  EXPECT_GT(worker.session(), first);
  EXPECT_TRUE(router.Wait([&] { return router.closed_ == 1 && router.open_ == 1; }));
}

TEST(SessionTest, MessagesForAnOlderSessionAreDropped) {
  TestRouter router;
  TestWorker worker(router.address());
  ASSERT_TRUE(worker.WaitConnected());
  ASSERT_TRUE(router.Wait([&] { return router.opened_.size() == 1; }));
  const int first = worker.session();
  router.server().Close(router.opened_[0].first);
  ASSERT_TRUE(worker.WaitConnected(2));

  worker.link().Send(first, ReserveQueued{"old", 0});
  worker.link().Send(worker.session(), ReserveQueued{"new", 0});

  ASSERT_TRUE(router.Wait([&] { return !router.messages_.empty(); }));
  EXPECT_EQ(std::get<ReserveQueued>(router.messages_[0].second).request_id, "new");
}

TEST(SessionTest, WorkerReturnsToARouterRestartedOnTheSamePort) {
  auto router = std::make_unique<TestRouter>();
  const int port = router->server().port();
  TestWorker worker(router->address());
  ASSERT_TRUE(worker.WaitConnected());

  router.reset();
  ASSERT_TRUE(worker.Wait([&] { return worker.disconnects_ == 1; }));
  router = std::make_unique<TestRouter>(port);

  EXPECT_TRUE(worker.WaitConnected(2));
}

TEST(SessionTest, WorkerThatStartsFirstFindsTheRouterLater) {
  int port;
  {
    TestRouter router;
    port = router.server().port();
  }
  TestWorker worker(absl::StrCat("127.0.0.1:", port));

  TestRouter router(port);

  EXPECT_TRUE(worker.WaitConnected());
}

TEST(SessionTest, ARefusedWorkerHearsWhyAndIsNotConnected) {
  TestRouter router(
      0, {"router", absl::Milliseconds(20), absl::FailedPreconditionError("fingerprints differ")});
  TestWorker worker(router.address());

  ASSERT_TRUE(worker.WaitConnected());

  EXPECT_EQ(worker.welcomes_[0].refusal.message(), "fingerprints differ");
  EXPECT_FALSE(worker.link().connected());
  EXPECT_TRUE(worker.Wait([&] { return worker.disconnects_ == 1; }));
  EXPECT_EQ(router.heartbeats_, 0);
}

// The router's thread for this worker is held up, so that the worker's messages pile up.
TEST(SessionTest, ASessionWhoseRouterReadsTooSlowlyIsBrokenOffAndRedialled) {
  absl::Notification release;
  std::unique_ptr<SessionServer> server;
  absl::Mutex mutex;
  int opened = 0;
  SessionServer::Callbacks callbacks;
  callbacks.on_open = [&](SessionId id, const Hello&) {
    absl::MutexLock lock(&mutex);
    const auto set = [&] { return server != nullptr; };
    mutex.Await(absl::Condition(&set));
    server->Send(id, Welcome{"slow", absl::Seconds(60), {}});
    ++opened;
  };
  callbacks.on_message = [&](SessionId, const WorkerMessage&) { release.WaitForNotification(); };
  callbacks.on_closed = [](SessionId) {};
  auto started = SessionServer::Start({"127.0.0.1:0"}, callbacks);
  ASSERT_TRUE(started.ok()) << started.status();
  {
    absl::MutexLock lock(&mutex);
    server = *std::move(started);
  }
  TestWorker worker(absl::StrCat("127.0.0.1:", server->port()), "w0", /*max_pending=*/4);
  ASSERT_TRUE(worker.WaitConnected());
  TokenOutput output;
  output.request_id = "big";
  output.tokens.resize(200'000);

  const int first = worker.session();
  for (int i = 0; i < 40; ++i) worker.link().Send(first, StepOutputs{{output}});

  EXPECT_TRUE(worker.Wait([&] { return worker.disconnects_ >= 1; }));
  EXPECT_TRUE(worker.WaitConnected(2));
  release.Notify();
  worker.Destroy();
  server.reset();
}

TEST(SessionTest, ServesManyWorkersAtOnce) {
  TestRouter router;
  std::vector<std::unique_ptr<TestWorker>> workers;
  for (int i = 0; i < 8; ++i) {
    workers.push_back(std::make_unique<TestWorker>(router.address(), absl::StrCat("w", i)));
  }
  for (auto& worker : workers) ASSERT_TRUE(worker->WaitConnected());

  for (auto& worker : workers) {
    worker->link().Send(worker->session(), ReserveQueued{"r", 1});
  }

  EXPECT_TRUE(router.Wait([&] { return router.messages_.size() == workers.size(); }));
}

TEST(SessionTest, ASecondServerOnTheSamePortIsRefusedByName) {
  TestRouter router;

  const auto second = SessionServer::Start(
      {router.address()},
      {[](SessionId, const Hello&) {}, [](SessionId, const WorkerMessage&) {}, [](SessionId) {}});

  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(router.address()), absl::string_view::npos);
}

// Links and servers die in any order while messages fly; nothing may hang, crash or be called late.
TEST(SessionTest, SurvivesDestructionAtAnyMoment) {
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    auto router = std::make_unique<TestRouter>();
    auto worker = std::make_unique<TestWorker>(router->address());
    if (round % 3 != 0) {
      ASSERT_TRUE(worker->WaitConnected());
    }
    for (int i = 0; i < 50 * (round % 3); ++i) {
      worker->link().Send(worker->session(), ReserveQueued{"r", i});
    }
    if (round % 2 == 0) {
      router.reset();
      worker.reset();
    } else {
      worker.reset();
      router.reset();
    }
  }
}

}  // namespace
}  // namespace baton::session
