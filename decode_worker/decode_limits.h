#pragma once
#include <algorithm>

#include "absl/time/time.h"
#include "common/sliding_window.h"

namespace baton::decode_worker {

// The bounds a decode scheduler keeps. Plain values that configuration has checked.
struct DecodeLimits {
  int block_size = 16;               // tokens per KV block
  int num_blocks = 0;                // of the pool
  int vocab_size = 0;                // token ids are in [0, vocab_size)
  int max_context = 0;               // prompt + output tokens the model can address
  int window = 0;                    // tokens that the rows of any layer see; 0: all before them
  int max_num_seqs = 32;             // sequences in the batch
  int max_num_batched_tokens = 512;  // rows of a step
  int max_waiting = 1024;            // requests queued for blocks; beyond them: refusal
  absl::Duration max_queue_wait = absl::Minutes(2);  // for blocks; then the request fails

  int BlocksFor(int num_tokens) const { return (num_tokens + block_size - 1) / block_size; }
  // The first block that the row at `position` or a later one sees; nobody needs those before it.
  int FirstVisibleBlock(int position) const { return FirstVisible(window, position) / block_size; }
  // What one sequence can ever reach here: the pool bounds it as well as the model, so that a
  // sequence alone in the pool can always finish, computed anew from its first token.
  int context() const { return std::min(max_context, num_blocks * block_size); }
  // Places in the batch. Every one of them may need a row in each step.
  int batch_places() const { return std::min(max_num_seqs, max_num_batched_tokens); }
  // Sequences that hold blocks. Some more than fit the batch, so that a place that becomes free
  // finds a prompt already handed over; few, since a sequence kept waiting after its first token is
  // a stream that stutters.
  int admitted() const { return batch_places() + std::max(2, batch_places() / 4); }
};

}  // namespace baton::decode_worker
