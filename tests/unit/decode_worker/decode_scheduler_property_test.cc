#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/decode_worker/scheduler_fixture.h"

namespace baton::decode_worker {
namespace {

// A request as its router and its prefill worker know it.
struct Client {
  worker::SessionKey session;
  session::RequestSpec spec;
  bool local = false;
  std::vector<SampledToken> alone;  // what it must give
  int received = 0;                 // output tokens so far
  std::uint64_t transfer_id = 0;    // 0 without a ticket
  int written = 0;                  // prompt tokens put into the granted blocks
  bool ended = false;
  bool ended_by_prefill = false;        // with its first token, which our worker may not know yet
  std::set<absl::StatusCode> may_fail;  // what could go wrong with it by now
};

// Routers, prefill workers and a clock that do random things to one scheduler, and a judge of all
// that it says.
class World {
 public:
  explicit World(unsigned seed) : random_(seed), fixture_(RandomLimits(random_)) {}

  void DoSomething() {
    const int what = Draw(0, 99);
    if (what < 22) {
      Arrive();
    } else if (what < 26) {
      CancelOne();
    } else if (what < 46) {
      MoveTransfer();
    } else if (what < 50) {
      FailTransfer();
    } else if (what < 60) {
      DeliverLate();
    } else if (what < 61) {
      LoseSession();
    } else if (what < 64) {
      fixture_.clock_.Advance(absl::Milliseconds(Draw(0, 4000)));
    } else if (what < 65) {
      FailStep();
    } else {
      Step();
    }
    Judge();
  }

  // No arrival any more: everything must come to its end in a bounded number of steps.
  void Finish() {
    int bound = 100;
    for (const auto& [id, client] : clients_) {
      if (!client.ended) {
        bound += static_cast<int>(client.spec.prompt.size() + 2 * client.alone.size());
      }
    }
    while (!fixture_.scheduler_.idle() || !late_.empty()) {
      ASSERT_GE(--bound, 0) << "too many steps";
      MoveTransfer();
      while (!late_.empty()) DeliverLate();
      Step();
      Judge();
    }
    for (const auto& [id, client] : clients_) EXPECT_TRUE(client.ended) << id;
    EXPECT_EQ(fixture_.allocator_.num_used(), 0);
    EXPECT_EQ(fixture_.observer_.begun, fixture_.observer_.ended);
    for (const auto& [id, ends] : fixture_.observer_.ends) EXPECT_EQ(ends.size(), 1u) << id;
  }

  int preemptions() const { return fixture_.observer_.preemptions; }
  int num_finished() const { return num_finished_; }

 private:
  static DecodeLimits RandomLimits(std::mt19937& random) {
    const auto draw = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    DecodeLimits limits;
    limits.block_size = draw(1, 5);
    limits.num_blocks = draw(4, 40);
    limits.vocab_size = kTestVocab;
    limits.max_context = draw(20, 200);
    if (draw(0, 1) == 0) limits.window = draw(1, 30);
    limits.max_num_seqs = draw(1, 8);
    limits.max_num_batched_tokens = draw(1, 24);
    limits.max_waiting = draw(1, 12);
    limits.max_queue_wait = absl::Seconds(draw(5, 60));
    return limits;
  }

  int Draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  SamplingParams RandomSampling() {
    SamplingParams sampling;
    sampling.temperature = Draw(0, 1) ? 0.0f : 1.2f;
    sampling.seed = random_();
    sampling.max_tokens = Draw(1, 40);
    sampling.min_tokens = Draw(0, 6);
    if (Draw(0, 1)) sampling.stop_token_ids = {static_cast<std::int32_t>(Draw(0, kTestVocab - 1))};
    if (Draw(0, 2) == 0) sampling.repetition_penalty = 1.3f;
    if (Draw(0, 2) == 0) sampling.top_k = Draw(1, 10);
    sampling.logprobs = Draw(0, 3) == 0;
    return sampling;
  }

  void Arrive() {
    Client client;
    client.session = {Draw(0, 1), sessions_[0]};
    client.session.session = sessions_[client.session.link];
    client.spec.request_id = absl::StrCat("r", clients_.size());
    const int context = fixture_.scheduler_.limits().context();
    for (int i = Draw(1, std::min(context + 1, 60)); i > 0; --i) {
      client.spec.prompt.push_back(static_cast<std::int32_t>(Draw(0, kTestVocab - 1)));
    }
    client.spec.sampling = RandomSampling();
    client.spec.priority = Draw(0, 2);
    if (Draw(0, 5) == 0) {
      client.spec.time_left = absl::Seconds(Draw(1, 20));
      client.may_fail.insert(absl::StatusCode::kDeadlineExceeded);
    }
    client.may_fail.insert(absl::StatusCode::kResourceExhausted);
    client.local = Draw(0, 1) == 0;
    if (static_cast<int>(client.spec.prompt.size()) + 1 > context) {
      client.may_fail = {absl::StatusCode::kInvalidArgument};
    } else {
      client.alone = fixture_.Alone(client.spec);
    }
    const session::RequestSpec spec = client.spec;
    const bool local = client.local;
    const worker::SessionKey session = client.session;
    clients_.emplace(spec.request_id, std::move(client));
    fixture_.Reserve(spec, local, session);
  }

  std::vector<Client*> Where(const std::function<bool(const Client&)>& predicate) {
    std::vector<Client*> found;
    for (auto& [id, client] : clients_) {
      if (predicate(client)) found.push_back(&client);
    }
    return found;
  }
  Client* PickWhere(const std::function<bool(const Client&)>& predicate) {
    const std::vector<Client*> found = Where(predicate);
    if (found.empty()) return nullptr;
    return found[static_cast<std::size_t>(Draw(0, static_cast<int>(found.size()) - 1))];
  }
  bool IsOpen(const Client& client) const {
    return fixture_.receiver_.open().count(client.transfer_id) > 0;
  }

  void CancelOne() {
    Client* client = PickWhere([](const Client& c) { return !c.ended; });
    if (client == nullptr) return;
    client->ended = true;
    fixture_.Cancel(client->spec.request_id, client->session);
    EXPECT_FALSE(IsOpen(*client)) << "blocks freed while a transfer may write";
  }

  // A prefill worker writes some more of a prompt; as long as the reservation is open, its blocks
  // are its own, so a scheduler that reuses them loses somebody's context.
  void MoveTransfer() {
    Client* client = PickWhere([&](const Client& c) { return IsOpen(c); });
    if (client == nullptr) return;
    const auto& reservation = fixture_.receiver_.open().at(client->transfer_id);
    const int size = static_cast<int>(client->spec.prompt.size());
    ASSERT_EQ(reservation.num_tokens, size);
    const int count = Draw(1, size - client->written + 1);
    const int end = std::min(client->written + count, size);
    fixture_.model_.Write(reservation.blocks, client->written,
                          std::span(client->spec.prompt)
                              .subspan(static_cast<std::size_t>(client->written),
                                       static_cast<std::size_t>(end - client->written)),
                          size);
    client->written = end;
    if (end < size) return;
    worker::ReceiveDone done;
    done.transfer_id = client->transfer_id;
    done.record.first_token = client->alone.front();
    done.report.completed = fixture_.clock_.Now();
    ASSERT_EQ(client->received, 0);
    client->received = 1;  // the prefill worker tells the router
    if (client->alone.size() == 1) {
      done.record.finish = FinishReason::kStop;
      client->ended = true;
      client->ended_by_prefill = true;
    }
    fixture_.receiver_.Close(client->transfer_id);
    late_.push_back(std::move(done));
  }

  void FailTransfer() {
    Client* client = PickWhere([&](const Client& c) { return IsOpen(c); });
    if (client == nullptr) return;
    client->may_fail.insert(absl::StatusCode::kUnavailable);
    fixture_.receiver_.Close(client->transfer_id);
    late_.push_back(
        worker::ReceiveFailed{client->transfer_id, absl::DeadlineExceededError("lease expired")});
  }

  // What the receiver said some time ago reaches the scheduler.
  void DeliverLate() {
    if (late_.empty()) return;
    worker::Event event = std::move(late_.front());
    late_.pop_front();
    fixture_.Handle(std::move(event));
  }

  void LoseSession() {
    const int link = Draw(0, 1);
    const worker::SessionKey lost{link, sessions_[link]++};
    for (Client* client : Where([&](const Client& c) { return !c.ended && c.session == lost; })) {
      client->ended = true;
    }
    fixture_.Handle(worker::SessionLost{lost});
  }

  void FailStep() {
    fixture_.model_.FailNextStep(absl::InternalError("injected"));
    for (Client* client : Where([](const Client& c) { return !c.ended; })) {
      client->may_fail.insert(absl::StatusCode::kInternal);
    }
    Step();
    fixture_.model_.FailNextStep(absl::OkStatus());
  }

  void Step() {
    const bool stepped = fixture_.Step();
    fixture_.clock_.Advance(absl::Milliseconds(Draw(0, 20)));
    // Nothing to compute, no transfer to wait for: then nobody may be left behind.
    if (!stepped && fixture_.receiver_.open().empty() && late_.empty()) {
      ASSERT_TRUE(fixture_.scheduler_.idle()) << "deadlock";
    }
  }

  void Judge() {
    for (const RecordingOutbox::Sent& sent : fixture_.outbox_.Take()) {
      if (const auto* granted = std::get_if<session::TicketGranted>(&sent.message)) {
        Client& client = Live(granted->request_id, sent.to);
        EXPECT_FALSE(client.local);
        EXPECT_EQ(client.transfer_id, 0u) << "two tickets";
        client.transfer_id = granted->ticket.transfer_id;
      } else if (const auto* failed = std::get_if<session::RequestFailed>(&sent.message)) {
        Client& client = clients_.at(failed->request_id);
        if (!client.ended_by_prefill) Live(failed->request_id, sent.to);
        EXPECT_TRUE(client.may_fail.count(failed->status.code())) << failed->status;
        client.ended = true;
      } else if (const auto* step = std::get_if<session::StepOutputs>(&sent.message)) {
        for (const session::TokenOutput& output : step->outputs) JudgeOutput(sent.to, output);
      }
    }
    const session::WorkerLoad load = fixture_.scheduler_.Load();
    ASSERT_LE(load.running, fixture_.scheduler_.limits().batch_places());
  }

  Client& Live(const std::string& id, worker::SessionKey to) {
    Client& client = clients_.at(id);
    EXPECT_FALSE(client.ended) << "a word about " << id << " after its end";
    EXPECT_EQ(client.session, to);
    return client;
  }

  void JudgeOutput(worker::SessionKey to, const session::TokenOutput& output) {
    Client& client = Live(output.request_id, to);
    ASSERT_EQ(output.first_position, client.received) << output.request_id;
    for (const SampledToken& token : output.tokens) {
      ASSERT_LT(client.received, static_cast<int>(client.alone.size()));
      const SampledToken& expected = client.alone[static_cast<std::size_t>(client.received)];
      ASSERT_EQ(token.token, expected.token) << output.request_id << " at " << client.received;
      ASSERT_EQ(token.logprob, expected.logprob);
      ++client.received;
    }
    const bool last = client.received == static_cast<int>(client.alone.size());
    ASSERT_EQ(output.finish != FinishReason::kNone, last) << output.request_id;
    if (!last) return;
    client.ended = true;
    ++num_finished_;
  }

  std::mt19937 random_;
  SchedulerFixture fixture_;
  std::map<std::string, Client> clients_;
  std::deque<worker::Event> late_;
  int sessions_[2] = {1, 1};
  int num_finished_ = 0;
};

// Property: under any order of arrivals, cancels, transfers and their failures, lost sessions,
// failed steps and whatever pool, each request gives the output it gives alone and ends once, the
// books balance after each event, and nobody waits for ever.
TEST(DecodeSchedulerPropertyTest, EachRequestGivesWhatItGivesAloneAndEndsOnce) {
  int preemptions = 0;
  int finished = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(seed);
    for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) world.DoSomething();

    world.Finish();

    preemptions += world.preemptions();
    finished += world.num_finished();
    if (testing::Test::HasFailure()) return;
  }
  // The traffic must have been worth judging.
  EXPECT_GT(preemptions, 300);
  EXPECT_GT(finished, 3000);
  RecordProperty("preemptions", preemptions);
  RecordProperty("finished", finished);
}

}  // namespace
}  // namespace baton::decode_worker
