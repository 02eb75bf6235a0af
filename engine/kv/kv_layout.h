#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton::engine {

enum class KvDType : std::uint8_t { kF16, kBF16, kF32 };

// As the fingerprint and the settings name it: "f16", "bf16", "f32".
constexpr std::string_view KvDTypeName(KvDType dtype) {
  return dtype == KvDType::kF16 ? "f16" : dtype == KvDType::kBF16 ? "bf16" : "f32";
}

// The shape of the KV blocks one rank holds. A block is `block_size` tokens of one layer: K, then
// V, each [num_kv_heads][block_size][head_dim]. A (layer, block) pair is one contiguous piece of
// memory of block_bytes(), which is also the unit of transfer. Part of the model fingerprint.
struct KvLayout {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_size = 16;  // tokens
  KvDType dtype = KvDType::kF16;

  std::size_t element_bytes() const { return dtype == KvDType::kF32 ? 4 : 2; }
  std::size_t half_block_bytes() const {  // K or V
    return element_bytes() * num_kv_heads * block_size * head_dim;
  }
  std::size_t block_bytes() const { return 2 * half_block_bytes(); }
  std::size_t bytes_per_token() const { return block_bytes() / block_size * num_layers; }
  // Blocks that hold `num_tokens` tokens.
  int BlocksFor(int num_tokens) const { return (num_tokens + block_size - 1) / block_size; }
  bool operator==(const KvLayout&) const = default;
};

}  // namespace baton::engine
