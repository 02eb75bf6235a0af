#pragma once
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics.h"
#include "engine/kv/block_allocator.h"
#include "prefill_worker/prefill_scheduler.h"
#include "prefill_worker/request_check.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_step_model.h"
#include "tests/support/fake_transfer.h"
#include "tests/support/recording_outbox.h"
#include "worker/metrics.h"
#include "worker/timeline_store.h"

namespace baton::prefill_worker {

inline constexpr int kVocab = 50;
inline constexpr int kBlockSize = 4;
inline constexpr int kLayers = 3;

// A prefill scheduler with a fake model, wire, clock and router around it.
class PrefillSetup {
 public:
  struct Options {
    int num_blocks = 32;
    int max_batched_tokens = 16;
    int max_sequences = 8;
    int max_waiting = 16;
    int max_context = 64;
  };

  PrefillSetup() : PrefillSetup(Options()) {}
  explicit PrefillSetup(const Options& options)
      : allocator(options.num_blocks),
        sender(kLayers),
        model(options.num_blocks, kBlockSize, kVocab, options.max_batched_tokens, kLayers),
        metrics(registry),
        timelines(1000),
        limits{.max_sequences = options.max_sequences,
               .max_batched_tokens = options.max_batched_tokens,
               .max_waiting = options.max_waiting,
               .max_context = options.max_context,
               .vocab_size = kVocab,
               .fingerprint = {"model", "f32", "f32", kLayers, 1, 8, {}},
               .cut = {.block_size = kBlockSize}},
        scheduler(limits, {.clock = &clock,
                           .allocator = &allocator,
                           .sender = &sender,
                           .post = [this](worker::Event e) { posted.push_back(std::move(e)); },
                           .outbox = &outbox,
                           .metrics = &metrics,
                           .timelines = &timelines}) {}

  // A prompt of `num_tokens` and a ticket that fits it.
  session::Prefill MakePrefill(const std::string& id, int num_tokens) const {
    session::Prefill prefill;
    prefill.spec.request_id = id;
    for (int i = 0; i < num_tokens; ++i) prefill.spec.prompt.push_back((i * 7 + 3) % kVocab);
    prefill.spec.sampling.temperature = 0;
    prefill.spec.sampling.max_tokens = 5;
    prefill.ticket.transfer_id = 1;
    prefill.ticket.worker_id = "d0";
    prefill.ticket.num_tokens = num_tokens;
    prefill.ticket.blocks.resize(limits.cut.BlocksFor(num_tokens));
    std::iota(prefill.ticket.blocks.begin(), prefill.ticket.blocks.end(), 0);
    prefill.ticket.fingerprint = limits.fingerprint;
    prefill.ticket.cut = limits.cut;
    return prefill;
  }

  void Submit(const session::Prefill& prefill, worker::SessionKey from = {0, 1}) {
    scheduler.Handle(worker::RouterEvent{from, prefill, clock.Now()});
  }
  void Cancel(const std::string& id, worker::SessionKey from = {0, 1}) {
    scheduler.Handle(worker::RouterEvent{from, session::Cancel{id}, clock.Now()});
  }
  bool Step() { return RunOneStep(scheduler, model); }
  // Gives the scheduler what the sender's callbacks have posted.
  void HandlePosted() {
    for (worker::Event& event : std::exchange(posted, {})) scheduler.Handle(std::move(event));
  }
  // Steps and lets transfers end until nothing moves.
  void RunToEnd() {
    while (!scheduler.idle()) {
      while (Step()) {
      }
      const auto open = sender.open();
      for (const auto& [key, transfer] : open) sender.FinishNaturally(key);
      if (posted.empty()) return;  // stuck: the test's idle() check will tell
      HandlePosted();
    }
  }
  std::uint64_t OnlyTransfer() const {
    return sender.open().size() == 1 ? sender.open().begin()->first : 0;
  }

  FakeClock clock;
  engine::BlockAllocator allocator;
  FakeTransferSender sender;
  FakeStepModel model;
  RecordingOutbox outbox;
  metrics::Registry registry;
  worker::WorkerMetrics metrics;
  worker::TimelineStore timelines;
  std::vector<worker::Event> posted;
  const PrefillLimits limits;
  PrefillScheduler scheduler;
};

}  // namespace baton::prefill_worker
