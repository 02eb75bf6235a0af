#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "engine/kv/block_allocator.h"
#include "engine/sampling/sampler.h"
#include "kvtransfer/transfer.h"
#include "prefill_worker/prefill_request.h"
#include "prefill_worker/prefill_table.h"
#include "session/messages.h"
#include "worker/metrics.h"
#include "worker/output_batch.h"
#include "worker/scheduler.h"
#include "worker/timeline_store.h"

namespace baton::prefill_worker {

// Computes prompts in chunks, several to a step, and hands each layer's KV blocks to the transfer
// as soon as that layer is computed; samples the first token, sends it to the router at once and to
// the decode worker behind the blocks.
//
//   router: Prefill -> waiting -- blocks free --> admitted -- last chunk --> handoff -- ack -->
//   gone
//                        |                           |                          |
//                        +------- cancel, failure, deadline, session lost ------+--> abandoned
//                        until
//                                                             the transfer lets go of the blocks
//
// A request is admitted as soon as its blocks are free, even when its turn to compute has not come:
// opening the transfer renews the decode worker's lease. Turns go by priority, then arrival. Each
// (layer, block) is put exactly once. For the router a request ends exactly once: by
// TransferReport, by RequestFailed, or silently when the router ended it itself.
// Not thread-safe; no call waits.
class PrefillScheduler final : public worker::Scheduler {
 public:
  // What the scheduler works with; all of it must outlive the scheduler. The sender's callbacks
  // become SendDone events through `post`, which is called on the sender's threads.
  struct Parts {
    const Clock* clock = nullptr;
    engine::BlockAllocator* allocator = nullptr;
    kvtransfer::TransferSender* sender = nullptr;
    std::function<void(worker::Event)> post;
    worker::Outbox* outbox = nullptr;
    worker::WorkerMetrics* metrics = nullptr;
    worker::TimelineStore* timelines = nullptr;
  };

  PrefillScheduler(PrefillLimits limits, Parts parts);
  // The sender must have called every DoneCallback by then, or be gone.
  ~PrefillScheduler() override = default;
  PrefillScheduler(const PrefillScheduler&) = delete;
  PrefillScheduler& operator=(const PrefillScheduler&) = delete;

  void Handle(worker::Event event) override;
  void Tick() override;
  absl::Time NextDeadline() const override { return table_.next_deadline(); }
  std::span<const engine::SequenceStep> PlanStep() override;
  bool watches_layers() const override { return true; }
  void OnLayer(int layer) override;
  void OnLogits(int index, int row, std::span<float> logits) override;
  void OnToken(int index, SampledToken token) override {
    chunks_[index].request->first_token = std::move(token);
  }
  void FinishStep(const absl::Status& status) override;
  session::WorkerLoad Load() const override;
  bool idle() const override { return table_.size() == 0; }

  session::BlockBooks Books() const;
  // kInternal when the blocks held by requests are not those the allocator has given out.
  absl::Status CheckBooks() const;

 private:
  // A request's part of the step under way: tokens [begin, end) of its prompt, which complete
  // blocks [first_block, last_block).
  struct Chunk {
    PrefillRequest* request;
    int begin;
    int end;
    int first_block;
    int last_block;
    bool last() const { return end == request->num_tokens(); }
  };

  void On(worker::RouterEvent event);
  void On(const worker::SessionLost& event);
  void On(const worker::SendDone& event);
  void On(const worker::ReceiveDone&) {}  // decode workers' business
  void On(const worker::ReceiveFailed&) {}
  void On(const worker::DrainStarted&) { draining_ = true; }
  void On(const worker::EndAll& event);

  void OnPrefill(worker::RequestKey key, session::Prefill prefill, absl::Time arrived);
  void OnCancel(const worker::RequestKey& key);
  absl::Status CheckAdmission(const session::Prefill& prefill) const;
  void Refuse(const worker::RequestKey& key, const absl::Status& status);
  void Admit();  // gives blocks to the head of the queue as long as that is possible
  void AdmitOne(PrefillRequest& request, engine::BlockList blocks);
  Chunk MakeChunk(PrefillRequest& request, int budget) const;
  void FinishChunk(const Chunk& chunk, absl::Time now);
  void FinishPrompt(PrefillRequest& request, absl::Time now);
  session::PhaseTimes ComputeTimes(const PrefillRequest& request) const;
  void ReportHandoff(PrefillRequest& request, const kvtransfer::SendReport& report);

  // Ends a request for everyone: frees it, or abandons it to its transfer. No message.
  void End(PrefillRequest& request, const absl::Status& why);
  // End, after telling the router.
  void Fail(PrefillRequest& request, const absl::Status& status);
  void Account(const PrefillRequest& request, const absl::Status& outcome);

  const PrefillLimits limits_;
  const Parts parts_;
  PrefillTable table_;
  engine::Sampler scorer_;
  worker::OutputBatch outputs_;
  std::vector<Chunk> chunks_;                // of the step under way
  std::vector<engine::SequenceStep> steps_;  // [chunks_.size()]
  absl::Time step_start_;
  std::uint64_t next_number_ = 1;
  bool draining_ = false;
  double tokens_per_second_ = 0;
};

}  // namespace baton::prefill_worker
