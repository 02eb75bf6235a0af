#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/sliding_window.h"

namespace baton {

// How a worker group cuts the KV cache: into blocks of tokens, and over tensor-parallel ranks that
// share out a layer's KV heads (KvHeadsOfRank in common/tensor_parallel.h). Groups that cut
// differently can hand over to each other; what may differ is CutsFit's to say.
struct KvCut {
  std::int32_t block_size = 0;            // tokens per block
  std::int32_t tensor_parallel_size = 1;  // ranks
  bool operator==(const KvCut&) const = default;

  // Blocks that hold `num_tokens` tokens.
  int BlocksFor(int num_tokens) const {
    return static_cast<int>((std::int64_t{num_tokens} + block_size - 1) / block_size);
  }
};

// Bounds of what is taken from a peer.
inline constexpr std::int32_t kMaxKvBlockSize = 256;
inline constexpr std::int32_t kMaxTensorParallelSize = 256;

// True if blocks of one cut can be put together from, or cut into, those of the other: the larger
// block size is a multiple of the smaller one. Tensor-parallel sizes always fit.
inline bool CutsFit(const KvCut& a, const KvCut& b) {
  const std::int32_t smaller = std::min(a.block_size, b.block_size);
  return smaller > 0 && std::max(a.block_size, b.block_size) % smaller == 0;
}

// What two workers must have in common before KV bytes may pass between them. Equal fields mean
// that the KV of a token computed by one can be attended to by the other, bit for bit.
struct ModelFingerprint {
  std::string model;     // checkpoint fingerprint, hex
  std::string compute;   // arithmetic and instruction set: "fast AVX2", "f32 AVX3_DL"
  std::string kv_dtype;  // "f16", "bf16" or "f32"
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;  // of the whole model
  std::int32_t head_dim = 0;
  // Tokens that a row of each layer sees, its own included, 0: all of them. Empty: all of them in
  // every layer.
  std::vector<std::int32_t> windows;

  int WindowOf(int layer) const {
    return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)];
  }
  // The window that holds what any layer's row sees; 0 when one sees everything.
  int WidestWindow() const {
    if (windows.empty() || std::count(windows.begin(), windows.end(), 0) > 0) return 0;
    return *std::max_element(windows.begin(), windows.end());
  }
  // The first position of a text of `num_tokens` tokens that rows after it see in `layer`, or in
  // any layer: what lies before it need not be kept. May be the position after the last.
  int FirstVisibleToken(int layer, int num_tokens) const {
    return FirstVisible(WindowOf(layer), num_tokens);
  }
  int FirstVisibleToken(int num_tokens) const { return FirstVisible(WidestWindow(), num_tokens); }
  bool operator==(const ModelFingerprint&) const = default;
};

// A decode worker's answer to a reservation: where each KV block of a prompt goes, until when, and
// what the sender must be. The transfer id is the decode worker's own and never reused within its
// incarnation.
struct TransferTicket {
  std::uint64_t transfer_id = 0;
  std::string worker_id;          // of the decode worker
  std::uint64_t incarnation = 0;  // tells a restarted worker from its former self
  absl::Duration lease;           // renewed by the sender while it works; expiry frees the blocks
  std::string address;            // host:port of the decode worker's transfer endpoint
  std::int32_t num_tokens = 0;    // prompt tokens to hand over
  // With block_size = cut.block_size: blocks[i] is the destination of prompt tokens
  // [i * block_size, (i + 1) * block_size), the same in every layer and rank; -1 where no layer
  // needs one: i < fingerprint.FirstVisibleToken(num_tokens) / block_size.
  std::vector<std::int32_t> blocks;
  ModelFingerprint fingerprint;
  KvCut cut;  // the decode worker's
  bool operator==(const TransferTicket&) const = default;
};

}  // namespace baton
