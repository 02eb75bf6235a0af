#include "engine/ops/reference/kv_access.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "checkpoint/tensor.h"

namespace baton::engine::reference {
namespace {

// The head_dim elements of one slot and KV head: half [num_kv_heads][block_size][head_dim].
std::byte* Slot(const KvPool& kv, int layer, std::span<const BlockId> block_table, int position,
                int kv_head, KvHalf half) {
  const KvLayout& layout = kv.layout();
  const BlockId block = block_table[position / layout.block_size];
  const std::size_t index =
      static_cast<std::size_t>(kv_head) * layout.block_size + position % layout.block_size;
  std::byte* begin = kv.Block(layer, block).data();
  if (half == KvHalf::kValue) begin += layout.half_block_bytes();
  return begin + index * layout.head_dim * layout.element_bytes();
}

}  // namespace

void WriteKv(KvPool& kv, int layer, std::span<const BlockId> block_table, int position, KvHalf half,
             const float* heads) {
  const KvLayout& layout = kv.layout();
  for (int head = 0; head < layout.num_kv_heads; ++head) {
    std::byte* slot = Slot(kv, layer, block_table, position, head, half);
    const float* values = heads + static_cast<std::size_t>(head) * layout.head_dim;
    if (layout.dtype == KvDType::kF32) {
      std::memcpy(slot, values, layout.head_dim * sizeof(float));
      continue;
    }
    for (int i = 0; i < layout.head_dim; ++i) {
      const std::uint16_t bits = layout.dtype == KvDType::kF16
                                     ? checkpoint::FloatToHalf(values[i])
                                     : checkpoint::FloatToBFloat16(values[i]);
      std::memcpy(slot + i * sizeof(bits), &bits, sizeof(bits));
    }
  }
}

void ReadKv(const KvPool& kv, int layer, std::span<const BlockId> block_table, int begin, int end,
            int kv_head, KvHalf half, float* out) {
  const KvLayout& layout = kv.layout();
  for (int position = begin; position < end; ++position) {
    const std::byte* slot = Slot(kv, layer, block_table, position, kv_head, half);
    float* values = out + static_cast<std::size_t>(position - begin) * layout.head_dim;
    if (layout.dtype == KvDType::kF32) {
      std::memcpy(values, slot, layout.head_dim * sizeof(float));
      continue;
    }
    for (int i = 0; i < layout.head_dim; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, slot + i * sizeof(bits), sizeof(bits));
      values[i] = layout.dtype == KvDType::kF16 ? checkpoint::HalfToFloat(bits)
                                                : checkpoint::BFloat16ToFloat(bits);
    }
  }
}

}  // namespace baton::engine::reference
