#include "engine/kv/kv_pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton::engine {
namespace {

absl::Status CheckShape(const KvLayout& layout, int num_blocks) {
  if (num_blocks <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("KV pool without blocks: %d; raise kv.blocks", num_blocks));
  }
  if (layout.num_layers <= 0 || layout.num_kv_heads <= 0 || layout.head_dim <= 0 ||
      layout.block_size <= 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "KV layout with an empty dimension: %d layers, %d KV heads, head_dim %d, block size %d",
        layout.num_layers, layout.num_kv_heads, layout.head_dim, layout.block_size));
  }
  if (layout.block_bytes() >
      std::numeric_limits<std::ptrdiff_t>::max() / static_cast<std::size_t>(num_blocks)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("KV pool too large to address: %d blocks of %d bytes in a layer",
                        num_blocks, layout.block_bytes()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const KvLayout& layout, int num_blocks) {
  if (absl::Status status = CheckShape(layout, num_blocks); !status.ok()) return status;
  std::unique_ptr<KvPool> pool(new KvPool(layout, num_blocks, kHost));
  const std::size_t layer_bytes = layout.block_bytes() * num_blocks;
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    void* memory = mmap(nullptr, layer_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "no memory for the KV pool: layer %d of %d, %d bytes each: %s; lower kv.blocks", layer,
          layout.num_layers, layer_bytes, std::strerror(errno)));
    }
    // Advice only: fewer TLB misses when attention walks the pool.
    madvise(memory, layer_bytes, MADV_HUGEPAGE);
    pool->layers_.push_back(static_cast<std::byte*>(memory));
  }
  return pool;
}

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Adopt(const KvLayout& layout, int num_blocks,
                                                      Memory memory) {
  if (absl::Status status = CheckShape(layout, num_blocks); !status.ok()) return status;
  if (static_cast<int>(memory.layers.size()) != layout.num_layers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("KV memory of another model: %d pieces for %d layers", memory.layers.size(),
                        layout.num_layers));
  }
  std::unique_ptr<KvPool> pool(new KvPool(layout, num_blocks, memory.device));
  pool->layers_ = std::move(memory.layers);
  pool->owner_ = std::move(memory.owner);
  return pool;
}

KvPool::KvPool(const KvLayout& layout, int num_blocks, int device)
    : layout_(layout), num_blocks_(num_blocks), device_(device) {}

KvPool::~KvPool() {
  if (device_ != kHost) return;
  for (std::byte* layer : layers_) munmap(layer, layout_.block_bytes() * num_blocks_);
}

}  // namespace baton::engine
