#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "router/core/dispatcher.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/router/core/dispatcher_fakes.h"

namespace baton::router {
namespace {

using session::WorkerRole;

// The token that any correct cluster gives at `position` of the sequence with `seed`.
std::int32_t ExpectedToken(std::uint64_t seed, int position) {
  return static_cast<std::int32_t>((seed * 31 + position * 7) % 1009);
}

// A cluster in one thread: workers with books of what they hold, messages under way in both
// directions, and faults at random.
class FakeCluster final : public WorkerOutbox {
 public:
  explicit FakeCluster(unsigned seed) : random_(seed) {}

  void Send(SessionId session, session::RouterMessage message) override {
    if (workers_.contains(session)) workers_[session].to_worker.push_back(std::move(message));
  }
  void Close(SessionId session) override { workers_.erase(session); }

  void Open(Dispatcher& dispatcher, const std::string& id, WorkerRole role) {
    const SessionId session = next_session_++;
    workers_[session].role = role;
    workers_[session].id = id;
    dispatcher.OnWorkerOpen(session, MakeHello(id, role));
  }
  // Kills a random worker and starts it again under the same name.
  void Restart(Dispatcher& dispatcher) {
    const SessionId session = AnyWorker();
    const FakeWorker gone = workers_[session];
    workers_.erase(session);
    if (random_() % 2 == 0) dispatcher.OnWorkerClosed(session);  // else the new Hello is first
    Open(dispatcher, gone.id, gone.role);
    dispatcher.OnWorkerClosed(session);
  }
  void Heartbeats(Dispatcher& dispatcher) {
    for (const auto& [session, worker] : workers_) {
      session::Heartbeat heartbeat;
      heartbeat.load.blocks.free = 100;
      heartbeat.load.running = static_cast<int>(worker.held.size());
      dispatcher.OnWorkerMessage(session, heartbeat);
    }
  }

  void StepSomeWorker(bool faults) {
    const SessionId session = AnyWorker();
    FakeWorker& worker = workers_[session];
    if (!worker.to_worker.empty() && random_() % 4 != 0) {
      session::RouterMessage message = std::move(worker.to_worker.front());
      worker.to_worker.pop_front();
      std::visit([&](auto& content) { Receive(worker, content, faults); }, message);
      return;
    }
    session::StepOutputs step;
    std::vector<std::string> over;
    for (auto& [id, held] : worker.held) Advance(worker, id, held, faults, step, over);
    for (const std::string& id : over) worker.held.erase(id);
    if (!step.outputs.empty()) worker.to_router.push_back(std::move(step));
  }
  void DeliverSomeMessage(Dispatcher& dispatcher) {
    const SessionId session = AnyWorker();
    FakeWorker& worker = workers_[session];
    if (worker.to_router.empty()) return;
    session::WorkerMessage message = std::move(worker.to_router.front());
    worker.to_router.pop_front();
    dispatcher.OnWorkerMessage(session, std::move(message));
  }

  int num_held() const {
    int count = 0;
    for (const auto& [session, worker] : workers_) count += static_cast<int>(worker.held.size());
    return count;
  }
  bool quiet() const {
    for (const auto& [session, worker] : workers_) {
      if (!worker.to_worker.empty() || !worker.to_router.empty()) return false;
    }
    return true;
  }

 private:
  struct Held {
    session::RequestSpec spec;
    bool has_prompt = false;  // decode: every block arrived; prefill: handed over
    int position = 0;         // of the next output token
    bool granted = false;
  };
  struct FakeWorker {
    WorkerRole role = WorkerRole::kBoth;
    std::string id;
    std::map<std::string, Held> held;
    std::deque<session::RouterMessage> to_worker;
    std::deque<session::WorkerMessage> to_router;
  };

  SessionId AnyWorker() {
    auto it = workers_.begin();
    std::advance(it, random_() % workers_.size());
    return it->first;
  }

  void Receive(FakeWorker&, session::Welcome&, bool) {}
  void Receive(FakeWorker& worker, session::Cancel& message, bool) {
    worker.held.erase(message.request_id);
  }
  void Receive(FakeWorker& worker, session::Reserve& message, bool faults) {
    const std::string id = message.spec.request_id;
    if (faults && random_() % 8 == 0) {
      worker.to_router.push_back(
          session::RequestFailed{id, absl::ResourceExhaustedError("no blocks")});
      return;
    }
    if (random_() % 3 == 0) worker.to_router.push_back(session::ReserveQueued{id, 1});
    Held& held = worker.held[id];
    held.spec = std::move(message.spec);
    held.has_prompt = held.granted = message.local_prefill;
  }
  void Receive(FakeWorker& worker, session::Prefill& message, bool) {
    worker.held[message.spec.request_id].spec = std::move(message.spec);
  }

  // One engine step's worth of one request.
  void Advance(FakeWorker& worker, const std::string& id, Held& held, bool faults,
               session::StepOutputs& step, std::vector<std::string>& over) {
    if (faults && random_() % 40 == 0) {
      worker.to_router.push_back(session::RequestFailed{id, absl::InternalError("broke")});
      over.push_back(id);
      return;
    }
    if (worker.role == WorkerRole::kPrefill) return AdvancePrefill(worker, id, held, step, over);
    if (!held.granted) {
      held.granted = true;
      session::TicketGranted granted;
      granted.request_id = id;
      granted.ticket.lease = absl::Seconds(2);
      worker.to_router.push_back(granted);
      return;
    }
    if (!held.has_prompt) return;
    if (Emit(id, held, step)) over.push_back(id);
  }
  void AdvancePrefill(FakeWorker& worker, const std::string& id, Held& held,
                      session::StepOutputs& step, std::vector<std::string>& over) {
    if (held.position == 0) {
      if (Emit(id, held, step)) over.push_back(id);
      return;
    }
    for (auto& [session, other] : workers_) {
      const auto it = other.held.find(id);
      if (other.role != WorkerRole::kDecode || it == other.held.end()) continue;
      it->second.has_prompt = true;
      it->second.position = 1;
      worker.to_router.push_back(session::TransferReport{id, {}});
      over.push_back(id);
      return;
    }
    worker.to_router.push_back(session::RequestFailed{id, absl::UnavailableError("peer gone")});
    over.push_back(id);
  }
  // True when the sequence has reached its length.
  bool Emit(const std::string& id, Held& held, session::StepOutputs& step) {
    const bool last = held.position + 1 >= held.spec.sampling.max_tokens;
    step.outputs.push_back(MakeOutput(id, held.position,
                                      {ExpectedToken(held.spec.sampling.seed, held.position)},
                                      last ? FinishReason::kLength : FinishReason::kNone));
    ++held.position;
    return last;
  }

  std::mt19937 random_;
  SessionId next_session_ = 1;
  std::map<SessionId, FakeWorker> workers_;
};

struct Client {
  RequestKey key = 0;
  std::uint64_t seed = 0;
  int max_tokens = 0;
  bool cancelled = false;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
};

class RandomTraffic {
 public:
  explicit RandomTraffic(unsigned seed) : random_(seed), cluster_(seed + 1) {
    cluster_.Open(dispatcher_, "p0", WorkerRole::kPrefill);
    cluster_.Open(dispatcher_, "p1", WorkerRole::kPrefill);
    cluster_.Open(dispatcher_, "d0", WorkerRole::kDecode);
    cluster_.Open(dispatcher_, "d1", WorkerRole::kDecode);
    cluster_.Open(dispatcher_, "b0", WorkerRole::kBoth);
  }

  void Run() {
    for (int step = 0; step < 1500; ++step) {
      const unsigned dice = random_() % 100;
      if (dice < 10) {
        Submit();
      } else if (dice < 13) {
        CancelOne();
      } else if (dice < 14) {
        cluster_.Restart(dispatcher_);
      } else if (dice < 20) {
        PassTime();
      } else if (dice < 60) {
        cluster_.StepSomeWorker(/*faults=*/true);
      } else {
        cluster_.DeliverSomeMessage(dispatcher_);
      }
    }
  }
  // Runs without faults until nothing is left to do.
  void Settle() {
    for (int step = 0; step < 200000; ++step) {
      if (dispatcher_.num_sequences() == 0 && cluster_.num_held() == 0 && cluster_.quiet() &&
          observer_.settled.size() == observer_.ended.size()) {
        return;
      }
      if (step % 50 == 0) PassTime();
      cluster_.StepSomeWorker(/*faults=*/false);
      cluster_.DeliverSomeMessage(dispatcher_);
    }
  }
  void ExpectEveryRequestEndedOnceAndNothingLeaked() {
    EXPECT_EQ(dispatcher_.num_sequences(), 0);
    EXPECT_EQ(dispatcher_.num_waiting(), 0);
    EXPECT_EQ(cluster_.num_held(), 0);
    EXPECT_EQ(static_cast<int>(observer_.ended.size()), num_admitted_);
    EXPECT_EQ(static_cast<int>(observer_.settled.size()), num_admitted_);
    for (const auto& [session, worker] : dispatcher_.registry().workers()) {
      EXPECT_EQ(worker.num_sequences, 0) << worker.hello.worker_id;
      EXPECT_EQ(worker.num_unanswered_tokens, 0) << worker.hello.worker_id;
    }
    std::set<std::string> ids;
    for (const SequenceRecord& record : observer_.settled) {
      EXPECT_TRUE(ids.insert(record.sequence_id).second) << record.sequence_id;
      EXPECT_EQ(SumOfPhases(record.timeline), record.timeline.ended() - record.timeline.arrival());
    }
    for (const Client& client : clients_) ExpectGood(client);
  }

 private:
  void Submit() {
    Client client;
    client.key = next_key_++;
    client.seed = random_();
    client.max_tokens = 1 + random_() % 12;
    std::vector<SequenceRequest> sequences;
    for (int n = 1 + random_() % 3; n > 0; --n) {
      auto sink = std::make_shared<RecordingSink>();
      if (random_() % 4 == 0) sink->stop_after = 1 + random_() % 6;
      client.sinks.push_back(sink);
      sequences.push_back(MakeSequence(sink, clock_.Now(), 1 + random_() % 200, client.max_tokens));
      sequences.back().sampling.seed = client.seed;
    }
    const int count = static_cast<int>(sequences.size());
    if (!dispatcher_.Submit(client.key, std::move(sequences)).ok()) return;
    num_admitted_ += count;
    clients_.push_back(std::move(client));
  }
  static DispatcherOptions Options() {
    DispatcherOptions options;
    options.max_sequences = 60;
    options.max_waiting = 40;
    return options;
  }
  void CancelOne() {
    if (clients_.empty()) return;
    Client& client =
        clients_[clients_.size() - 1 - random_() % std::min<size_t>(clients_.size(), 8)];
    dispatcher_.Cancel(client.key);
    client.cancelled = true;
  }
  void PassTime() {
    clock_.Advance(absl::Milliseconds(random_() % 300));
    cluster_.Heartbeats(dispatcher_);
    dispatcher_.Tick();
  }
  static void ExpectGood(const Client& client) {
    for (const auto& sink : client.sinks) {
      EXPECT_FALSE(sink->called_after_end);
      EXPECT_TRUE(client.cancelled || sink->ended());
      for (size_t i = 0; i < sink->tokens.size(); ++i) {
        EXPECT_EQ(sink->tokens[i], ExpectedToken(client.seed, static_cast<int>(i)));
      }
      if (sink->finish == FinishReason::kLength) {
        EXPECT_EQ(static_cast<int>(sink->tokens.size()), client.max_tokens);
      }
    }
  }

  std::mt19937 random_;
  FakeClock clock_;
  FakeCluster cluster_;
  RecordingObserver observer_;
  std::unique_ptr<PlacementPolicy> policy_ = MakeLeastLoadedPolicy({});
  Dispatcher dispatcher_{Options(), clock_, *policy_, cluster_, observer_};
  RequestKey next_key_ = 1;
  int num_admitted_ = 0;
  std::vector<Client> clients_;
};

// Property: under random traffic, cancels, refusals, failures and restarts every request ends
// exactly once, its tokens are in order, and no worker is left holding anything.
TEST(DispatcherPropertyTest, EveryRequestEndsOnceAndNothingLeaks) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomTraffic traffic(seed);

    traffic.Run();
    traffic.Settle();

    traffic.ExpectEveryRequestEndedOnceAndNothingLeaked();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace baton::router
