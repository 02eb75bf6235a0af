#pragma once
#include "absl/status/status.h"
#include "decode_worker/decode_limits.h"
#include "decode_worker/request_table.h"
#include "engine/kv/block_allocator.h"
#include "session/messages.h"

namespace baton::decode_worker {

// Counts the pool's blocks by who holds them, from the requests' own lists: reserved are those of
// receiving requests, active those of ready and running ones. O(requests).
session::BlockBooks CountBlocks(const RequestTable& table, const engine::BlockAllocator& allocator);

// Verifies that the books balance: free + cached + reserved + active == total, every block has one
// owner, every request holds what its state says and enough for what it has computed. O(blocks).
//   kInternal  names the first request or sum that is wrong
absl::Status CheckBlocks(const RequestTable& table, const engine::BlockAllocator& allocator,
                         const DecodeLimits& limits);

}  // namespace baton::decode_worker
