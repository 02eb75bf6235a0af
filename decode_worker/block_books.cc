#include "decode_worker/block_books.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::decode_worker {
namespace {

absl::Status CheckSequence(const Sequence& sequence, const DecodeLimits& limits) {
  const int places = sequence.blocks.size();
  int num_computed = sequence.num_computed;
  int needed = limits.BlocksFor(num_computed);
  if (sequence.state == SequenceState::kReceiving) {
    num_computed = sequence.prompt_size;  // once the transfer is complete
    needed = limits.BlocksFor(sequence.prompt_size + 1);
  }
  const bool right = sequence.holds_blocks()
                         ? places > 0 && places >= needed &&
                               sequence.blocks.num_holes() == limits.FirstVisibleBlock(num_computed)
                         : places == 0;
  if (!right || sequence.num_computed >= sequence.num_tokens()) {
    return absl::InternalError(absl::StrFormat(
        "request %s holds the wrong number of KV blocks: %d and %d holes in state %d, with %d of "
        "%d "
        "tokens computed",
        sequence.key.request_id, sequence.blocks.num_held(), sequence.blocks.num_holes(),
        static_cast<int>(sequence.state), sequence.num_computed, sequence.num_tokens()));
  }
  return absl::OkStatus();
}

}  // namespace

session::BlockBooks CountBlocks(const RequestTable& table,
                                const engine::BlockAllocator& allocator) {
  session::BlockBooks books;
  books.total = allocator.num_blocks();
  books.free = allocator.num_free();
  for (const Sequence* sequence : table.in(SequenceState::kReceiving)) {
    books.reserved += sequence->blocks.num_held();
  }
  for (const SequenceState state : {SequenceState::kReady, SequenceState::kRunning}) {
    for (const Sequence* sequence : table.in(state)) books.active += sequence->blocks.num_held();
  }
  return books;
}

absl::Status CheckBlocks(const RequestTable& table, const engine::BlockAllocator& allocator,
                         const DecodeLimits& limits) {
  std::vector<const Sequence*> owners(static_cast<std::size_t>(allocator.num_blocks()), nullptr);
  for (const Sequence* sequence : table.all()) {
    BATON_RETURN_IF_ERROR(CheckSequence(*sequence, limits));
    for (const engine::BlockId block : sequence->blocks.ids()) {
      if (block == engine::kNoBlock) continue;
      const Sequence*& owner = owners[static_cast<std::size_t>(block)];
      if (owner != nullptr || allocator.reference_count(block) != 1) {
        return absl::InternalError(absl::StrFormat("KV block %d has more than one owner: %s and %s",
                                                   block, sequence->key.request_id,
                                                   owner ? owner->key.request_id : "a stranger"));
      }
      owner = sequence;
    }
  }
  const session::BlockBooks books = CountBlocks(table, allocator);
  const int sum = books.free + books.cached + books.reserved + books.active;
  if (sum != books.total) {
    return absl::InternalError(absl::StrFormat(
        "KV block books do not balance: free %d + cached %d + reserved %d + active %d is %d, "
        "total %d",
        books.free, books.cached, books.reserved, books.active, sum, books.total));
  }
  return absl::OkStatus();
}

}  // namespace baton::decode_worker
