#include "engine/ops/cpu/append_kv.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/row_loop.h"

namespace baton::engine::cpu {
namespace {

// How one row's heads are turned.
struct Rotation {
  const Rope& rope;
  const float* cos;  // [rope.dim / 2]
  const float* sin;
};

void Rotate(const Rotation& rotation, float* head) {
  const int pairs = rotation.rope.dim / 2;
  const bool interleaved = rotation.rope.interleaved;
  const int step = interleaved ? 2 : 1;
  float* first = head;
  float* second = interleaved ? head + 1 : head + pairs;
  for (int i = 0; i < pairs; ++i, first += step, second += step) {
    const float a = *first;
    const float b = *second;
    *first = a * rotation.cos[i] - b * rotation.sin[i];
    *second = b * rotation.cos[i] + a * rotation.sin[i];
  }
}

// norm: [head_dim], or empty for none.
void FinishHeads(const LayerPlan& plan, const std::vector<float>& norm, const Rotation& rotation,
                 int num_heads, float* head) {
  for (int h = 0; h < num_heads; ++h, head += plan.head_dim) {
    if (!norm.empty()) RmsNormRow(head, norm.data(), plan.norm_eps, plan.head_dim, head);
    Rotate(rotation, head);
  }
}

// Writes the keys and values of one row to the slot at `offset` of `block`.
void WriteSlot(const KvLayout& layout, const float* key_values, int offset, std::byte* block) {
  const int head_dim = layout.head_dim;
  const std::size_t head_bytes = layout.element_bytes() * head_dim;
  for (int half = 0; half < 2; ++half, block += layout.half_block_bytes()) {
    for (int h = 0; h < layout.num_kv_heads; ++h, key_values += head_dim) {
      std::byte* to =
          block + (static_cast<std::size_t>(h) * layout.block_size + offset) * head_bytes;
      if (layout.dtype == KvDType::kF16) {
        FloatsToHalves(key_values, head_dim, reinterpret_cast<std::uint16_t*>(to));
      } else {
        std::memcpy(to, key_values, head_bytes);
      }
    }
  }
}

}  // namespace

void AppendKv(ThreadPool& pool, const ModelPlan& plan, int layer, const CpuLayer& weights,
              const RaggedBatch& batch, float* q, float* key_values, KvPool& kv) {
  const LayerPlan& shape = plan.layers[layer];
  const KvLayout& layout = kv.layout();
  const std::size_t q_columns = static_cast<std::size_t>(shape.num_heads) * shape.head_dim;
  const std::size_t kv_columns = static_cast<std::size_t>(shape.num_kv_heads) * shape.head_dim;
  const Rope& rope = plan.ropes[shape.rope];
  const RopeAngles& angles = batch.angles[shape.rope];
  const std::size_t pairs = rope.dim / 2;
  for (const BatchSequence& sequence : batch.sequences) {
    ForRows(pool, sequence.num_rows, [&](int i, int) {
      const std::size_t row = sequence.first_row + i;
      const int position = sequence.start_position + i;
      const Rotation rotation{rope, angles.cos + row * pairs, angles.sin + row * pairs};
      float* keys = key_values + row * 2 * kv_columns;
      FinishHeads(shape, weights.q_norm, rotation, shape.num_heads, q + row * q_columns);
      FinishHeads(shape, weights.k_norm, rotation, shape.num_kv_heads, keys);
      WriteSlot(layout, keys, position % layout.block_size,
                kv.Block(layer, sequence.block_table[position / layout.block_size]).data());
    });
  }
}

}  // namespace baton::engine::cpu
