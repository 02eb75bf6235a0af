#pragma once
#include <span>

#include "engine/kv/kv_pool.h"

namespace baton::engine::reference {

enum class KvHalf { kKey, kValue };

// Writes K or V of one token into its slot, rounded to the pool's dtype.
//   heads: [num_kv_heads, head_dim]
void WriteKv(KvPool& kv, int layer, std::span<const BlockId> block_table, int position, KvHalf half,
             const float* heads);

// Reads K or V of one KV head at positions [begin, end) into `out`. Touches no other slot, nor the
// block table's entries of blocks that hold none of these.
//   out: [end - begin, head_dim]
void ReadKv(const KvPool& kv, int layer, std::span<const BlockId> block_table, int begin, int end,
            int kv_head, KvHalf half, float* out);

}  // namespace baton::engine::reference
