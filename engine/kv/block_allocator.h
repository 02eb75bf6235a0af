#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace baton::engine {

class BlockAllocator;
using BlockId = std::int32_t;  // index into every layer's pool of one rank, in [0, num_blocks)
inline constexpr BlockId kNoBlock = -1;  // in a block table: nothing is held for these tokens

// Holds references to the KV blocks of one sequence and gives them back when destroyed. The first
// places of the list may be holes: tokens that no later row sees, whose blocks were given back or
// never taken. Move-only; a moved-from list is empty. Not thread-safe. Must not outlive its
// allocator.
class BlockList {
 public:
  BlockList() = default;
  BlockList(BlockList&& other) noexcept;
  BlockList& operator=(BlockList&& other) noexcept;
  ~BlockList();
  // In token order: ids()[i] holds tokens [i * block_size, (i + 1) * block_size); kNoBlock in
  // holes.
  const std::vector<BlockId>& ids() const { return ids_; }
  int size() const { return static_cast<int>(ids_.size()); }  // holes included
  int num_holes() const { return num_holes_; }
  int num_held() const { return size() - num_holes_; }
  // Appends the blocks of `tail`, which must come from the same allocator (or be empty) and have no
  // holes.
  void Append(BlockList&& tail);
  // Gives back what the first `count` places hold and makes them holes; those that are stay so.
  // Requires count <= size().
  void ReleaseFront(int count);
  // Puts `count` holes before all other places.
  void PrependHoles(int count);
  // Gives every block back now.
  void Clear();

 private:
  friend class BlockAllocator;
  BlockList(BlockAllocator* owner, std::vector<BlockId> ids);
  BlockAllocator* owner_ = nullptr;  // not owned
  std::vector<BlockId> ids_;
  int num_holes_ = 0;  // at the front of ids_
};

// Accounts for the KV blocks of one rank by id; the bytes belong to `KvPool`. Every block is free
// or referenced by at least one live list: num_free() + num_used() == num_blocks(), always.
// Paged KV cache as in Kwon et al. 2023 (arXiv:2309.06180), section 4. Thread-safe.
class BlockAllocator {
 public:
  explicit BlockAllocator(int num_blocks);  // requires num_blocks > 0, which config has checked

  // Takes `count` blocks with one reference each, all or none, in O(count). Never waits.
  //   kInvalidArgument    count is not in 1..num_blocks(); no retry can succeed
  //   kResourceExhausted  fewer than `count` are free now; retry after a release
  absl::StatusOr<BlockList> Allocate(int count);
  // A second owner of the first `count` blocks of `list`: each gains a reference and is free again
  // only when every owner gave it back. Requires 0 <= count <= list.size() and no holes.
  BlockList Share(const BlockList& list, int count);
  // Owners of `block` now; 0 when free.
  int reference_count(BlockId block) const;

  int num_blocks() const { return num_blocks_; }
  int num_free() const;
  int num_used() const { return num_blocks_ - num_free(); }

 private:
  friend class BlockList;
  void Release(std::span<const BlockId> ids);
  const int num_blocks_;
  mutable absl::Mutex mutex_;
  std::vector<BlockId> free_ ABSL_GUARDED_BY(mutex_);  // a stack: the back goes out first
  std::vector<std::int32_t> references_ ABSL_GUARDED_BY(mutex_);  // [num_blocks]
};

}  // namespace baton::engine
