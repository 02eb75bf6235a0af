#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/sampling_params.h"
#include "engine/kv/block_allocator.h"
#include "worker/events.h"

namespace baton::decode_worker {

// Where a request is on its way. What it holds in each state:
//   kWaiting    nothing: it has just arrived, or was preempted
//   kReceiving  blocks for prompt and first output token, which a transfer may write
//   kReady      blocks, but no place in the batch
//   kRunning    blocks and a place in the batch
enum class SequenceState : std::uint8_t { kWaiting, kReceiving, kReady, kRunning };
inline constexpr int kNumSequenceStates = 4;

// What a request's time goes to, for timelines: kQueued for blocks, kReceiving its prompt's KV,
// kReady until it is in a step, kPrefill, kDecode, kPreempted until it is in a step again.
enum class Phase : std::uint8_t { kQueued, kReceiving, kReady, kPrefill, kDecode, kPreempted };

// One request on its way through the decode worker. Its blocks have this one owner; whoever
// destroys it has silenced the transfer that writes to them. Not thread-safe.
struct Sequence {
  worker::RequestKey key;
  SamplingParams sampling;
  std::int32_t priority = 0;         // lower goes first
  std::uint64_t arrival_number = 0;  // breaks ties of priority
  absl::Time arrived;
  absl::Time deadline;  // of the whole request
  absl::Time expires;   // when to give up in the present state; at most `deadline`

  SequenceState state = SequenceState::kWaiting;
  Phase phase = Phase::kQueued;
  bool local_prefill = false;
  bool needs_transfer = false;  // its prompt's KV still has to come from a prefill worker
  bool stalled = false;         // the last plan found no block for its next token
  std::uint64_t transfer_id = 0;

  std::vector<std::int32_t> tokens;  // prompt, then output
  int prompt_size = 0;
  int num_computed = 0;      // tokens[0, num_computed) have their KV in `blocks`, holes apart
  engine::BlockList blocks;  // with holes where no later row of it sees
  int preemptions = 0;

  std::vector<SampledToken> prompt_logprobs;  // of tokens[1..] scored so far
  bool reported = false;  // its first TokenOutput, the one with PhaseTimes, was made
  absl::Time received;    // the last block's arrival; of a transfer
  absl::Time first_step;  // start of the first step that had a row of it
  bool was_stepped = false;

  std::span<const std::int32_t> prompt() const {
    return std::span(tokens).first(static_cast<std::size_t>(prompt_size));
  }
  std::span<const std::int32_t> output() const {
    return std::span(tokens).subspan(static_cast<std::size_t>(prompt_size));
  }
  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int num_output() const { return num_tokens() - prompt_size; }
  // Tokens to compute before the next one can be sampled: 1 is a decode row, more is prefill.
  int num_remaining() const { return num_tokens() - num_computed; }
  bool holds_blocks() const { return state != SequenceState::kWaiting; }
};

// The order in which requests get places and blocks: by priority, then by arrival. Total.
struct RanksBefore {
  bool operator()(const Sequence* a, const Sequence* b) const {
    return std::pair(a->priority, a->arrival_number) < std::pair(b->priority, b->arrival_number);
  }
};

}  // namespace baton::decode_worker
