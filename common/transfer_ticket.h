#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/sliding_window.h"

namespace baton {

// What two workers must have in common before KV bytes may pass between them. Equal fields mean
// that a block computed by one can be attended to by the other, bit for bit.
struct ModelFingerprint {
  std::string model;     // checkpoint fingerprint, hex
  std::string compute;   // arithmetic and instruction set: "fast AVX2", "f32 AVX3_DL"
  std::string kv_dtype;  // "f16" or "f32"
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 0;  // tokens
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
  // The first block of a text of `num_tokens` tokens that rows after it see in `layer`, or in any
  // layer: what lies before it need not be kept. May be the block after the last.
  int FirstVisibleBlock(int layer, int num_tokens) const {
    return FirstVisible(WindowOf(layer), num_tokens) / block_size;
  }
  int FirstVisibleBlock(int num_tokens) const {
    return FirstVisible(WidestWindow(), num_tokens) / block_size;
  }
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
  // blocks[i] is the destination of prompt tokens [i * block_size, (i + 1) * block_size), the same
  // in every layer; -1 where no layer needs one: i < fingerprint.FirstVisibleBlock(num_tokens).
  std::vector<std::int32_t> blocks;
  ModelFingerprint fingerprint;
  bool operator==(const TransferTicket&) const = default;
};

}  // namespace baton
