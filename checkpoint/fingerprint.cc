#include "checkpoint/fingerprint.h"

#include <openssl/evp.h>

#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/check.h"

namespace baton::checkpoint {
namespace {

constexpr std::size_t kSampleBytes = 4096;
// Changes whenever what is hashed changes, so that fingerprints of two releases never agree by
// accident.
constexpr std::string_view kScheme = "baton-checkpoint-fingerprint-2";

// SHA-256 over fields; each text is preceded by its length, so that no two field lists hash alike.
class Hasher {
 public:
  Hasher() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    BATON_CHECK(
        context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
        "libcrypto has no SHA-256");
  }

  void Bytes(std::span<const std::byte> bytes) {
    BATON_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1,
                "SHA-256 update failed");
  }
  void Number(std::int64_t number) { Bytes(std::as_bytes(std::span(&number, 1))); }
  void Real(float number) { Number(std::bit_cast<std::int32_t>(number)); }
  void Text(std::string_view text) {
    Number(static_cast<std::int64_t>(text.size()));
    Bytes(std::as_bytes(std::span(text)));
  }

  std::string Finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    BATON_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1,
                "SHA-256 finish failed");
    return absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

void HashReals(const std::vector<float>& numbers, Hasher& hasher) {
  hasher.Number(static_cast<std::int64_t>(numbers.size()));
  for (const float number : numbers) hasher.Real(number);
}

void HashFlags(const std::vector<bool>& flags, Hasher& hasher) {
  hasher.Number(static_cast<std::int64_t>(flags.size()));
  for (const bool flag : flags) hasher.Number(flag ? 1 : 0);
}

void HashRope(const RopeMetadata& rope, Hasher& hasher) {
  for (const int number :
       {rope.dim, static_cast<int>(rope.interleaved), static_cast<int>(rope.scaling),
        rope.original_max_position, static_cast<int>(rope.truncate)}) {
    hasher.Number(number);
  }
  for (const float number : {rope.theta, rope.factor, rope.attention_factor,
                             rope.low_frequency_factor, rope.high_frequency_factor, rope.beta_fast,
                             rope.beta_slow, rope.mscale, rope.mscale_all_dim}) {
    hasher.Real(number);
  }
  HashReals(rope.short_factors, hasher);
  HashReals(rope.long_factors, hasher);
  HashReals(rope.frequency_factors, hasher);
}

// All but the name.
void HashMetadata(const ModelMetadata& metadata, Hasher& hasher) {
  hasher.Text(metadata.architecture);
  hasher.Text(metadata.format);
  for (const int number :
       {metadata.hidden_size, metadata.num_layers, metadata.num_heads, metadata.num_kv_heads,
        metadata.head_dim, metadata.intermediate_size, metadata.vocab_size, metadata.max_context,
        metadata.sliding_window, metadata.num_experts, metadata.experts_per_token,
        metadata.expert_intermediate_size, static_cast<int>(metadata.activation)}) {
    hasher.Number(number);
  }
  for (const bool flag :
       {metadata.tied_embeddings, metadata.attention_bias, metadata.output_bias, metadata.mlp_bias,
        metadata.qk_norm, metadata.post_norms, metadata.normalize_expert_weights}) {
    hasher.Number(flag ? 1 : 0);
  }
  for (const float number :
       {metadata.rms_norm_eps, metadata.norm_offset, metadata.embedding_scale,
        metadata.attention_scale, metadata.attention_softcap, metadata.logit_softcap}) {
    hasher.Real(number);
  }
  HashFlags(metadata.windowed_layers, hasher);
  HashFlags(metadata.no_rope_layers, hasher);
  HashRope(metadata.rope, hasher);
  hasher.Number(metadata.local_rope.has_value() ? 1 : 0);
  if (metadata.local_rope.has_value()) HashRope(*metadata.local_rope, hasher);
}

void HashSamples(std::span<const std::byte> data, Hasher& hasher) {
  if (data.size() <= 3 * kSampleBytes) return hasher.Bytes(data);
  hasher.Bytes(data.first(kSampleBytes));
  hasher.Bytes(data.subspan(data.size() / 2 - kSampleBytes / 2, kSampleBytes));
  hasher.Bytes(data.last(kSampleBytes));
}

}  // namespace

std::string Fingerprint(const ModelMetadata& metadata,
                        const std::map<std::string, Tensor, std::less<>>& tensors) {
  Hasher hasher;
  hasher.Text(kScheme);
  HashMetadata(metadata, hasher);
  for (const auto& [name, tensor] : tensors) {
    hasher.Text(name);
    hasher.Text(DTypeName(tensor.dtype));
    hasher.Number(static_cast<std::int64_t>(tensor.shape.size()));
    for (const std::int64_t size : tensor.shape) hasher.Number(size);
    HashSamples(tensor.data, hasher);
    hasher.Number(static_cast<std::int64_t>(tensor.column_order.size()));
    hasher.Bytes(std::as_bytes(tensor.column_order));
  }
  return hasher.Finish();
}

}  // namespace baton::checkpoint
