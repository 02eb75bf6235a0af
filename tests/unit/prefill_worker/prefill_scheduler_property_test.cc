#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/prefill_worker/prefill_setup.h"

namespace baton::prefill_worker {
namespace {

// Drives a scheduler with random arrivals, steps, cancels, lost sessions, passing deadlines, broken
// wires and failing steps, and checks after each that nothing is lost, doubled or shared.
class RandomTraffic {
 public:
  explicit RandomTraffic(unsigned seed)
      : random_(seed),
        setup_({.num_blocks = Below(30) + 6,
                .max_batched_tokens = Below(20) + 1,
                .max_sequences = Below(5) + 1,
                .max_waiting = Below(12) + 1}) {}

  void Run(int num_actions) {
    for (int action = 0; action < num_actions; ++action) {
      SCOPED_TRACE(absl::StrCat("action ", action));
      Act();
      Check();
      if (::testing::Test::HasFailure()) return;
    }
    setup_.RunToEnd();
    Check();
    EXPECT_TRUE(setup_.scheduler.idle());
    EXPECT_EQ(setup_.allocator.num_used(), 0);
    EXPECT_TRUE(setup_.sender.open().empty());
    CheckEnds();
  }

 private:
  struct Sent {
    session::Prefill prefill;
    worker::SessionKey from;
    bool ended_by_router = false;  // cancelled or its session lost: may end silently
  };

  int Below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

  void Act() {
    switch (Below(10)) {
      case 0:
      case 1:
      case 2:
        return Submit();
      case 3:
        return CancelSome();
      case 4:
        return EndSomeTransfer();
      case 5:
        if (Below(8) == 0) return LoseSession();
        if (Below(8) == 0) setup_.model.FailNextStep(absl::InternalError("fault"));
        return;
      case 6:
        setup_.clock.Advance(absl::Milliseconds(Below(200)));
        return;
      default:
        Step();
    }
  }

  void Submit() {
    const std::string id = absl::StrCat("r", sent_.size());
    session::Prefill prefill = setup_.MakePrefill(id, 1 + Below(66));  // a few can never fit
    for (std::int32_t& token : prefill.spec.prompt) token = Below(kVocab);
    prefill.spec.priority = Below(3);
    prefill.spec.sampling.temperature = static_cast<float>(Below(2));
    prefill.spec.sampling.seed = random_();
    prefill.spec.sampling.max_tokens = 1 + Below(3);
    prefill.spec.sampling.prompt_logprobs = Below(4) == 0;
    if (Below(4) == 0) prefill.spec.time_left = absl::Milliseconds(Below(1000));
    const worker::SessionKey from{Below(2), session_[Below(2)]};
    setup_.Submit(prefill, from);
    sent_[id] = {prefill, from};
  }

  void CancelSome() {
    if (sent_.empty()) return;
    auto it = sent_.begin();
    std::advance(it, Below(static_cast<int>(sent_.size())));
    it->second.ended_by_router = true;
    setup_.Cancel(it->first, it->second.from);
  }

  void LoseSession() {
    const worker::SessionKey lost{Below(2), session_[Below(2)]};
    setup_.scheduler.Handle(worker::SessionLost{lost});
    for (auto& [id, sent] : sent_) {
      if (sent.from == lost) sent.ended_by_router = true;
    }
    session_[Below(2)] = ++last_session_;
  }

  // Acknowledged, aborted or broken off; sometimes the news is not handled at once.
  void EndSomeTransfer() {
    if (!setup_.sender.open().empty()) {
      auto it = setup_.sender.open().begin();
      std::advance(it, Below(static_cast<int>(setup_.sender.open().size())));
      setup_.sender.FinishNaturally(it->first);
    }
    if (Below(2) == 0) setup_.HandlePosted();
  }

  // A step in whose midst a wire may break.
  void Step() {
    setup_.scheduler.Tick();
    const auto plan = setup_.scheduler.PlanStep();
    if (plan.empty()) return;
    const bool breaks = Below(10) == 0;
    engine::StepHooks hooks = worker::HooksOf(setup_.scheduler);
    hooks.on_layer = [&](int layer) {
      setup_.scheduler.OnLayer(layer);
      if (breaks && layer == 1) setup_.sender.FinishNaturally(setup_.sender.open().begin()->first);
    };
    setup_.scheduler.FinishStep(setup_.model.Step(plan, hooks));
  }

  void Check() {
    EXPECT_TRUE(setup_.scheduler.CheckBooks().ok()) << setup_.scheduler.CheckBooks();
    EXPECT_TRUE(setup_.sender.violations().empty()) << setup_.sender.violations()[0];
    const session::WorkerLoad load = setup_.scheduler.Load();
    EXPECT_GE(load.running, 0);
    EXPECT_GE(load.waiting, 0);
  }

  // Every request ended exactly once, with the right first token if with any.
  void CheckEnds() {
    std::map<std::string, int> ends;
    for (const auto& [id, sent] : sent_) {
      const auto failures = setup_.outbox.Of<session::RequestFailed>(id).size();
      const auto reports = setup_.outbox.Of<session::TransferReport>(id).size();
      const auto outputs = setup_.outbox.OutputsOf(id);
      SCOPED_TRACE(id);
      if (sent.ended_by_router) {
        EXPECT_LE(failures + reports, 1u);
      } else {
        EXPECT_EQ(failures + reports, 1u);
      }
      EXPECT_LE(outputs.size(), 1u);
      if (reports == 1) {
        EXPECT_EQ(outputs.size(), 1u);
        ++num_finished_;
      }
      if (outputs.empty()) continue;
      const auto expected = FakeStepModel::OutputAlone(
          sent.prefill.spec.sampling, sent.prefill.spec.prompt, kVocab, setup_.limits.max_context);
      EXPECT_EQ(outputs[0].tokens.at(0).token, expected[0].token);
      EXPECT_EQ(outputs[0].finish != FinishReason::kNone, expected.size() == 1);
      const std::size_t scores = sent.prefill.spec.prompt.size() - 1;
      EXPECT_EQ(outputs[0].prompt_logprobs.size(),
                sent.prefill.spec.sampling.prompt_logprobs ? scores : 0u);
    }
  }

 public:
  int num_finished_ = 0;

 private:
  std::mt19937_64 random_;
  PrefillSetup setup_;
  std::map<std::string, Sent> sent_;
  int session_[2] = {1, 2};
  int last_session_ = 2;
};

// Property: under any traffic and any faults the books balance, no block is reused while a transfer
// may read it, each (layer, block) is put once, and every request ends exactly once.
TEST(PrefillSchedulerPropertyTest, KeepsItsPromisesUnderRandomTrafficAndFaults) {
  int num_finished = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomTraffic traffic(seed);
    traffic.Run(/*num_actions=*/300);
    if (HasFailure()) return;
    num_finished += traffic.num_finished_;
  }
  EXPECT_GT(num_finished, 1000);  // the faults have left something to check
}

}  // namespace
}  // namespace baton::prefill_worker
