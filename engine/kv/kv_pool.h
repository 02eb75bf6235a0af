#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/kv/block_allocator.h"
#include "engine/kv/kv_layout.h"

namespace baton::engine {

// The bytes of every KV block of one rank: one allocation per layer, so that block id `b` names the
// same place in each. Knows nothing of who owns a block (see BlockAllocator). Distinct blocks may
// be read and written from distinct threads.
class KvPool {
 public:
  // Memory that a backend allocated for a pool: one piece per layer of [num_blocks][block_bytes].
  struct Memory {
    std::vector<std::byte*> layers;
    int device = 0;               // index of the device that the pieces lie on
    std::shared_ptr<void> owner;  // frees them; lives as long as the pool
  };
  // Reserves address space for `num_blocks` blocks in each layer; pages are taken on first write.
  //   kInvalidArgument    num_blocks <= 0
  //   kResourceExhausted  the system refuses the memory
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const KvLayout& layout, int num_blocks);
  // A pool in the memory of a device. `memory.layers` has a piece for each layer of `layout`.
  //   kInvalidArgument  num_blocks <= 0, an empty dimension, or another number of pieces
  static absl::StatusOr<std::unique_ptr<KvPool>> Adopt(const KvLayout& layout, int num_blocks,
                                                       Memory memory);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  int num_blocks() const { return num_blocks_; }
  // The device whose memory holds the blocks, which the host then must not touch; kHost: our own.
  static constexpr int kHost = -1;
  int device() const { return device_; }
  // First byte of layer `layer`: [num_blocks][block_bytes].
  std::byte* LayerData(int layer) const { return layers_[layer]; }
  // The block_bytes() of one block in one layer.
  std::span<std::byte> Block(int layer, BlockId block) const {
    return {layers_[layer] + layout_.block_bytes() * block, layout_.block_bytes()};
  }

 private:
  KvPool(const KvLayout& layout, int num_blocks, int device);
  const KvLayout layout_;
  const int num_blocks_;
  const int device_;
  std::vector<std::byte*> layers_;  // owned mappings, or in adopted memory
  std::shared_ptr<void> owner_;     // of adopted memory
};

}  // namespace baton::engine
