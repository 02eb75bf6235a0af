#include "checkpoint/fingerprint.h"

#include <openssl/evp.h>

#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

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

void HashMetadata(const ModelMetadata& metadata, Hasher& hasher) {
  hasher.Text(metadata.architecture);
  hasher.Text(metadata.format);
  for (const int number :
       {metadata.hidden_size, metadata.num_layers, metadata.num_heads, metadata.num_kv_heads,
        metadata.head_dim, metadata.intermediate_size, metadata.vocab_size, metadata.max_context,
        static_cast<int>(metadata.tied_embeddings), static_cast<int>(metadata.attention_bias),
        metadata.rope.dim, static_cast<int>(metadata.rope.interleaved),
        static_cast<int>(metadata.rope.scaling), metadata.rope.original_max_position}) {
    hasher.Number(number);
  }
  for (const float number :
       {metadata.rms_norm_eps, metadata.rope.theta, metadata.rope.factor,
        metadata.rope.low_frequency_factor, metadata.rope.high_frequency_factor}) {
    hasher.Real(number);
  }
  hasher.Number(static_cast<std::int64_t>(metadata.rope.frequency_factors.size()));
  for (const float factor : metadata.rope.frequency_factors) hasher.Real(factor);
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
