#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "decode_worker/decode_limits.h"
#include "decode_worker/request_observer.h"
#include "decode_worker/request_table.h"
#include "decode_worker/sequence.h"
#include "decode_worker/step_batch.h"
#include "decode_worker/step_planner.h"
#include "engine/kv/block_allocator.h"
#include "kvtransfer/transfer.h"
#include "session/messages.h"
#include "worker/output_batch.h"
#include "worker/scheduler.h"

namespace baton::decode_worker {

// Continuous batching over paged KV blocks, after Orca (Yu et al. 2022) and vLLM (Kwon et al.
// 2023): between any two steps requests join and leave the batch.
//
//   router: Reserve -> waiting -- blocks free --> receiving -- KV arrived --> ready <-> running
//                       ^   |                                                 ^  |        |
//                       |   +---- blocks free; local prefill or resumed ------+  |        |
//                       +------------------------- preempted --------------------+--------+
//
// A request leaves from any state: finished, cancelled, expired, failed, or its session ended. It
// is over for the router when its last message (an output with a finish reason, or RequestFailed)
// was sent, or silently when the router asked for its end or knows of it.
//
// Places and blocks go by priority, then arrival; nobody overtakes the head of the queue. Output
// does not depend on what else runs, nor on preemption: KV is computed again, tokens are never
// sampled again. Not thread-safe; no call waits, but see TransferReceiver::Release.
class DecodeScheduler final : public worker::Scheduler {
 public:
  // What the scheduler works with; all of it must outlive the scheduler.
  struct Parts {
    const Clock* clock = nullptr;
    engine::BlockAllocator* allocator = nullptr;
    worker::Outbox* outbox = nullptr;
    RequestObserver* observer = nullptr;
    kvtransfer::TransferReceiver* receiver = nullptr;  // null: this worker takes no transfers
  };

  // `limits` describes the pool of `parts.allocator`.
  DecodeScheduler(const DecodeLimits& limits, const Parts& parts);
  ~DecodeScheduler() override;  // ends every transfer
  DecodeScheduler(const DecodeScheduler&) = delete;
  DecodeScheduler& operator=(const DecodeScheduler&) = delete;

  void Handle(worker::Event event) override;
  void Tick() override;
  absl::Time NextDeadline() const override { return table_.next_expiry(); }
  std::span<const engine::SequenceStep> PlanStep() override;
  bool watches_layers() const override { return false; }
  void OnLayer(int /*layer*/) override {}
  void OnLogits(int index, int row, std::span<float> logits) override {
    batch_.OnLogits(index, row, logits);
  }
  void OnToken(int index, SampledToken token) override { batch_.OnToken(index, std::move(token)); }
  void FinishStep(const absl::Status& status) override;
  session::WorkerLoad Load() const override;
  bool idle() const override { return table_.size() == 0; }

  session::BlockBooks Books() const;
  absl::Status CheckBooks() const;  // see CheckBlocks; kInternal when our books are wrong
  const DecodeLimits& limits() const { return limits_; }

 private:
  // One per event.
  void On(worker::RouterEvent event);
  void On(const worker::SessionLost& event);
  void On(const worker::SendDone&) {}  // prefill workers' business
  void On(const worker::ReceiveDone& event);
  void On(const worker::ReceiveFailed& event);
  void On(const worker::DrainStarted&) { draining_ = true; }
  void On(const worker::EndAll& event);

  void OnReserve(worker::RequestKey key, session::Reserve reserve, absl::Time arrived);
  void OnCancel(const worker::RequestKey& key);
  // What stands against a new request; also its reason when that is not an ended double.
  absl::Status CheckReserve(const worker::RequestKey& key, const session::Reserve& reserve,
                            RefusalReason& reason);
  std::unique_ptr<Sequence> MakeSequence(worker::RequestKey key, session::Reserve reserve,
                                         absl::Time arrived);
  int PlaceOf(Sequence& sequence) const;

  // Gives blocks to the head of the queue as long as that is possible.
  void Admit();
  bool AdmitOne(Sequence& sequence);
  bool HasRoomFor(const Sequence& sequence, int num_blocks) const;
  void GrantTicket(Sequence& sequence);
  void Adopt(Sequence& sequence, const worker::ReceiveDone& event);

  void ReportOutputs(absl::Time end);
  // Gives back the blocks that no row after the step's sees.
  void FreeHidden() const;
  session::TokenOutput MakeOutput(Sequence& sequence, SampledToken token, absl::Time end);
  void FailStep(const absl::Status& status);
  void NoteRate(int prefill_rows, absl::Duration duration);

  void EnterPhase(Sequence& sequence, Phase phase, absl::Time at);
  // Silences the transfer if there is one, then frees everything.
  void End(Sequence& sequence, const absl::Status& why);
  // End, and tells the router.
  void Fail(Sequence& sequence, absl::Status status);

  const DecodeLimits limits_;
  const Parts parts_;
  RequestTable table_;
  StepPlanner planner_;
  StepBatch batch_;
  worker::OutputBatch outputs_;
  absl::Time step_start_;
  std::uint64_t next_arrival_ = 0;
  bool draining_ = false;
  double prefill_tokens_per_second_ = 0;
};

}  // namespace baton::decode_worker
