#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "decode_worker/decode_scheduler.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_step_model.h"
#include "tests/support/fake_transfer_receiver.h"
#include "tests/support/recording_outbox.h"
#include "tests/unit/decode_worker/counting_observer.h"

namespace baton::decode_worker {

inline constexpr int kTestVocab = 48;
inline constexpr worker::SessionKey kTestRouter{0, 1};

// A decode scheduler with everything around it faked. After each event and step it verifies the
// block books.
class SchedulerFixture {
 public:
  explicit SchedulerFixture(const DecodeLimits& limits, bool takes_transfers = true)
      : allocator_(limits.num_blocks),
        model_(limits.num_blocks, limits.block_size, limits.vocab_size,
               limits.max_num_batched_tokens, /*num_layers=*/1, limits.window),
        scheduler_(limits, {&clock_, &allocator_, &outbox_, &observer_,
                            takes_transfers ? &receiver_ : nullptr}) {}

  static DecodeLimits Limits(int num_blocks, int block_size = 4) {
    DecodeLimits limits;
    limits.num_blocks = num_blocks;
    limits.block_size = block_size;
    limits.vocab_size = kTestVocab;
    limits.max_context = 4096;
    limits.max_num_seqs = 8;
    limits.max_num_batched_tokens = 16;
    limits.max_waiting = 16;
    return limits;
  }

  // A greedy request for exactly `max_tokens`, with a prompt of its own.
  static session::RequestSpec Spec(const std::string& id, int prompt_tokens, int max_tokens) {
    session::RequestSpec spec;
    spec.request_id = id;
    for (int i = 0; i < prompt_tokens; ++i) {
      spec.prompt.push_back(static_cast<std::int32_t>((id.back() * 7 + i * 5) % kTestVocab));
    }
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = max_tokens;
    return spec;
  }

  void Handle(worker::Event event) {
    scheduler_.Handle(std::move(event));
    ExpectBalance();
  }
  void Reserve(session::RequestSpec spec, bool local, worker::SessionKey from = kTestRouter) {
    Handle(worker::RouterEvent{from, session::Reserve{std::move(spec), local}, clock_.Now()});
  }
  void Cancel(const std::string& id, worker::SessionKey from = kTestRouter) {
    Handle(worker::RouterEvent{from, session::Cancel{id}, clock_.Now()});
  }
  // Delivers the KV of `spec`, for which a ticket was granted, with its first token.
  void CompleteTransfer(const session::RequestSpec& spec,
                        FinishReason finish = FinishReason::kNone) {
    const std::uint64_t id = TicketOf(spec.request_id).transfer_id;
    model_.Write(receiver_.open().at(id).blocks, 0, spec.prompt,
                 static_cast<int>(spec.prompt.size()));
    ASSERT_TRUE(receiver_.Close(id));
    worker::ReceiveDone done;
    done.transfer_id = id;
    done.record = {Alone(spec).front(), finish};
    done.report.completed = clock_.Now();
    Handle(done);
  }
  TransferTicket TicketOf(const std::string& id) const {
    const auto granted = outbox_.Of<session::TicketGranted>(id);
    EXPECT_EQ(granted.size(), 1u) << id;
    return granted.empty() ? TransferTicket() : granted.front().ticket;
  }

  bool Step() {
    const bool stepped = RunOneStep(scheduler_, model_);
    ExpectBalance();
    return stepped;
  }
  // Steps until there is nothing to compute.
  int StepUntilIdle(int limit = 10000) {
    int steps = 0;
    while (steps < limit && Step()) ++steps;
    EXPECT_LT(steps, limit) << "still stepping";
    return steps;
  }

  // What `spec` gives when it has the model to itself.
  std::vector<SampledToken> Alone(const session::RequestSpec& spec) const {
    return FakeStepModel::OutputAlone(spec.sampling, spec.prompt, kTestVocab,
                                      scheduler_.limits().context(), scheduler_.limits().window);
  }
  // Expects that the outputs sent so far are those of `spec` alone from `first` to the end, each
  // position once and in order, with the finish reason on the last only.
  void ExpectWholeOutput(const session::RequestSpec& spec, int first = 0) const {
    SCOPED_TRACE(spec.request_id);
    const std::vector<SampledToken> alone = Alone(spec);
    int position = first;
    const auto outputs = outbox_.OutputsOf(spec.request_id);
    ASSERT_FALSE(outputs.empty());
    for (const session::TokenOutput& output : outputs) {
      ASSERT_EQ(output.first_position, position);
      for (const SampledToken& token : output.tokens) {
        ASSERT_LT(position, static_cast<int>(alone.size()));
        EXPECT_EQ(token.token, alone[static_cast<std::size_t>(position)].token) << position;
        ++position;
      }
      const bool last = position == static_cast<int>(alone.size());
      EXPECT_EQ(output.finish != FinishReason::kNone, last) << position;
    }
    EXPECT_EQ(position, static_cast<int>(alone.size()));
  }

  void ExpectBalance() {
    const absl::Status status = scheduler_.CheckBooks();
    ASSERT_TRUE(status.ok()) << status;
    const session::BlockBooks books = scheduler_.Books();
    ASSERT_EQ(books.reserved + books.active, allocator_.num_used());
  }

  FakeClock clock_;
  engine::BlockAllocator allocator_;
  FakeStepModel model_;
  FakeTransferReceiver receiver_;
  RecordingOutbox outbox_;
  CountingObserver observer_;
  DecodeScheduler scheduler_;
};

}  // namespace baton::decode_worker
