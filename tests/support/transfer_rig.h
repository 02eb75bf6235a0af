#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/tensor_parallel.h"
#include "common/transfer_ticket.h"
#include "kvtransfer/plan.h"
#include "kvtransfer/transfer.h"

namespace baton::kvtransfer {

// A worker group's KV pools on the heap for transfer tests.
class TestPool {
 public:
  TestPool(const ModelFingerprint& model, const KvCut& cut, int num_blocks)
      : model_(model), cut_(cut), num_blocks_(num_blocks) {
    for (int rank = 0; rank < cut.tensor_parallel_size; ++rank) {
      ranks_.emplace_back(model.num_layers, std::vector<std::byte>(num_blocks * block_bytes(rank)));
    }
  }
  std::size_t block_bytes(int rank = 0) const { return BlockBytes(model_, cut_, rank); }
  const KvCut& cut() const { return cut_; }
  KvMemory memory() {
    KvMemory memory{.ranks = {}, .block_size = cut_.block_size, .num_blocks = num_blocks_};
    for (int rank = 0; rank < cut_.tensor_parallel_size; ++rank) {
      memory.ranks.push_back({.layers = {}, .block_bytes = block_bytes(rank)});
      for (auto& layer : ranks_[rank]) memory.ranks[rank].layers.push_back(layer.data());
    }
    return memory;
  }
  std::byte* at(int layer, int block, int rank = 0) {
    return ranks_[rank][layer].data() + block * block_bytes(rank);
  }
  void Fill(unsigned seed) {
    std::mt19937_64 random(seed);
    for (auto& rank : ranks_) {
      for (auto& layer : rank) {
        for (std::size_t i = 0; i < layer.size(); i += 8) {
          const std::uint64_t word = random();
          std::memcpy(&layer[i], &word, std::min<std::size_t>(8, layer.size() - i));
        }
      }
    }
  }
  // Of pools that are cut alike.
  bool SameBlock(int layer, int block, TestPool& other, int other_block, int rank = 0) {
    return std::memcmp(at(layer, block, rank), other.at(layer, other_block, rank),
                       block_bytes(rank)) == 0;
  }
  // K (half 0) or V of one head of the model and one token of a prompt that lies in `blocks`, in a
  // rank that holds the head.
  std::span<const std::byte> Row(int layer, int half, int head, int token, int rank,
                                 const std::vector<std::int32_t>& blocks) {
    const IndexRange heads = KvHeadsOfRank(model_.num_kv_heads, cut_.tensor_parallel_size, rank);
    const std::size_t bytes = block_bytes(rank) / (2 * heads.size() * cut_.block_size);
    const int row =
        (half * heads.size() + head - heads.begin) * cut_.block_size + token % cut_.block_size;
    return {at(layer, blocks[token / cut_.block_size], rank) + row * bytes, bytes};
  }
  // The first rank from `rank` on that holds `head`; -1 when none does.
  int HolderOf(int head, int rank = 0) const {
    for (; rank < cut_.tensor_parallel_size; ++rank) {
      if (KvHeadsOfRank(model_.num_kv_heads, cut_.tensor_parallel_size, rank).contains(head)) {
        return rank;
      }
    }
    return -1;
  }
  // Whether every rank of `other` that holds a head has the rows of tokens [first, last) of a
  // prompt that the first holder has here.
  bool SameTokens(int layer, int first, int last, const std::vector<std::int32_t>& blocks,
                  TestPool& other, const std::vector<std::int32_t>& other_blocks) {
    for (int head = 0; head < model_.num_kv_heads; ++head) {
      for (int to = other.HolderOf(head); to >= 0; to = other.HolderOf(head, to + 1)) {
        for (int token = first; token < last; ++token) {
          for (const int half : {0, 1}) {
            const auto ours = Row(layer, half, head, token, HolderOf(head), blocks);
            const auto theirs = other.Row(layer, half, head, token, to, other_blocks);
            if (!std::ranges::equal(ours, theirs)) return false;
          }
        }
      }
    }
    return true;
  }

 private:
  const ModelFingerprint model_;
  const KvCut cut_;
  const int num_blocks_;
  std::vector<std::vector<std::vector<std::byte>>> ranks_;  // [ranks][layers]
};

inline ModelFingerprint TestFingerprint(int num_layers) {
  return {.model = "test-model",
          .compute = "fast",
          .kv_dtype = "f16",
          .num_layers = num_layers,
          .num_kv_heads = 3,
          .head_dim = 64};
}

// Blocks of 12288 bytes.
inline constexpr KvCut kTestCut{.block_size = 16};

// Collects outcomes by id and lets a test wait for them. Thread-safe.
class Outcomes {
 public:
  void Add(std::uint64_t id, const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    ++counts_[id];
    statuses_[id] = status;
  }
  bool Has(std::uint64_t id) const {
    absl::MutexLock lock(&mutex_);
    return counts_.contains(id);
  }
  // The outcome of `id`; kUnknown when none came within `timeout`.
  absl::Status Wait(std::uint64_t id, absl::Duration timeout = absl::Seconds(20)) const {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return counts_.contains(id); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), timeout)) {
      return absl::UnknownError("no outcome in time");
    }
    return statuses_.at(id);
  }
  int count(std::uint64_t id) const {
    absl::MutexLock lock(&mutex_);
    const auto it = counts_.find(id);
    return it == counts_.end() ? 0 : it->second;
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<std::uint64_t, int> counts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, absl::Status> statuses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::kvtransfer
