#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/transfer_ticket.h"
#include "kvtransfer/transfer.h"

namespace baton::kvtransfer {

// A KV pool on the heap for transfer tests.
class TestPool {
 public:
  TestPool(int num_layers, int num_blocks, std::size_t block_bytes) : block_bytes_(block_bytes) {
    layers_.assign(num_layers, std::vector<std::byte>(num_blocks * block_bytes));
    num_blocks_ = num_blocks;
  }
  KvMemory memory() {
    KvMemory memory{.layers = {}, .block_bytes = block_bytes_, .num_blocks = num_blocks_};
    for (auto& layer : layers_) memory.layers.push_back(layer.data());
    return memory;
  }
  std::byte* at(int layer, int block) { return layers_[layer].data() + block * block_bytes_; }
  void Fill(unsigned seed) {
    std::mt19937_64 random(seed);
    for (auto& layer : layers_) {
      for (std::size_t i = 0; i < layer.size(); i += 8) {
        const std::uint64_t word = random();
        std::memcpy(&layer[i], &word, std::min<std::size_t>(8, layer.size() - i));
      }
    }
  }
  bool SameBlock(int layer, int block, TestPool& other, int other_block) {
    return std::memcmp(at(layer, block), other.at(layer, other_block), block_bytes_) == 0;
  }

 private:
  std::vector<std::vector<std::byte>> layers_;
  std::size_t block_bytes_;
  int num_blocks_;
};

inline ModelFingerprint TestFingerprint(int num_layers) {
  return {.model = "test-model",
          .compute = "fast",
          .kv_dtype = "f16",
          .num_layers = num_layers,
          .num_kv_heads = 3,
          .head_dim = 64,
          .block_size = 16};
}

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
