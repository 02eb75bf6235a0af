#include "engine/kv/block_allocator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton::engine {

BlockList::BlockList(BlockAllocator* owner, std::vector<BlockId> ids)
    : owner_(owner), ids_(std::move(ids)) {}

BlockList::BlockList(BlockList&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      ids_(std::exchange(other.ids_, {})),
      num_holes_(std::exchange(other.num_holes_, 0)) {}

BlockList& BlockList::operator=(BlockList&& other) noexcept {
  if (this != &other) {
    Clear();
    owner_ = std::exchange(other.owner_, nullptr);
    ids_ = std::exchange(other.ids_, {});
    num_holes_ = std::exchange(other.num_holes_, 0);
  }
  return *this;
}

BlockList::~BlockList() { Clear(); }

void BlockList::Append(BlockList&& tail) {
  if (tail.ids_.empty() || this == &tail) return;
  BATON_CHECK(num_held() == 0 || owner_ == tail.owner_, "lists of two allocators cannot be joined");
  BATON_CHECK(tail.num_holes_ == 0, "holes must stand at the front of a list");
  owner_ = tail.owner_;
  ids_.insert(ids_.end(), tail.ids_.begin(), tail.ids_.end());
  tail.ids_.clear();
}

void BlockList::ReleaseFront(int count) {
  BATON_CHECK(count <= size(), "more blocks given back than the list has");
  if (count <= num_holes_) return;
  owner_->Release(std::span(ids_).subspan(num_holes_, count - num_holes_));
  std::fill(ids_.begin() + num_holes_, ids_.begin() + count, kNoBlock);
  num_holes_ = count;
}

void BlockList::PrependHoles(int count) {
  BATON_CHECK(count >= 0, "a negative number of holes");
  ids_.insert(ids_.begin(), count, kNoBlock);
  num_holes_ += count;
}

void BlockList::Clear() {
  if (num_held() > 0) owner_->Release(std::span(ids_).subspan(num_holes_));
  ids_.clear();
  num_holes_ = 0;
}

BlockAllocator::BlockAllocator(int num_blocks)
    : num_blocks_(num_blocks), free_(num_blocks), references_(num_blocks, 0) {
  // Highest id at the bottom, so that low ids go out first and a dump of a small run is readable.
  std::iota(free_.rbegin(), free_.rend(), 0);
}

absl::StatusOr<BlockList> BlockAllocator::Allocate(int count) {
  if (count <= 0 || count > num_blocks_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "KV block count out of range: %d, must be 1..%d; shorten the request or raise kv.blocks",
        count, num_blocks_));
  }
  absl::MutexLock lock(&mutex_);
  const int num_free = static_cast<int>(free_.size());
  if (count > num_free) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "not enough free KV blocks: need %d, free %d of %d", count, num_free, num_blocks_));
  }
  std::vector<BlockId> ids(free_.rbegin(), free_.rbegin() + count);
  free_.resize(num_free - count);
  for (const BlockId id : ids) references_[id] = 1;
  return BlockList(this, std::move(ids));
}

BlockList BlockAllocator::Share(const BlockList& list, int count) {
  BATON_CHECK(count >= 0 && count <= list.size(), "more blocks shared than the list holds");
  if (count == 0) return BlockList();
  BATON_CHECK(list.num_holes_ == 0, "a list with holes cannot be shared");
  BATON_CHECK(list.owner_ == this, "a list of another allocator cannot be shared");
  std::vector<BlockId> ids(list.ids_.begin(), list.ids_.begin() + count);
  absl::MutexLock lock(&mutex_);
  for (const BlockId id : ids) ++references_[id];
  return BlockList(this, std::move(ids));
}

int BlockAllocator::reference_count(BlockId block) const {
  BATON_CHECK(block >= 0 && block < num_blocks_, "block id out of range");
  absl::MutexLock lock(&mutex_);
  return references_[block];
}

int BlockAllocator::num_free() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(free_.size());
}

void BlockAllocator::Release(std::span<const BlockId> ids) {
  absl::MutexLock lock(&mutex_);
  // Last first, so that a list taken again right away has its ids in the same order.
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    BATON_CHECK(references_[*id] > 0, "a free KV block was given back");
    if (--references_[*id] == 0) free_.push_back(*id);
  }
}

}  // namespace baton::engine
