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
  // Reserves address space for `num_blocks` blocks in each layer; pages are taken on first write.
  //   kInvalidArgument    num_blocks <= 0
  //   kResourceExhausted  the system refuses the memory
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const KvLayout& layout, int num_blocks);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  int num_blocks() const { return num_blocks_; }
  // First byte of layer `layer`: [num_blocks][block_bytes].
  std::byte* LayerData(int layer) const { return layers_[layer]; }
  // The block_bytes() of one block in one layer.
  std::span<std::byte> Block(int layer, BlockId block) const {
    return {layers_[layer] + layout_.block_bytes() * block, layout_.block_bytes()};
  }

 private:
  KvPool(const KvLayout& layout, int num_blocks);
  const KvLayout layout_;
  const int num_blocks_;
  std::vector<std::byte*> layers_;  // owned mappings
};

}  // namespace baton::engine
