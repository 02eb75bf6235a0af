#include "tests/support/random_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton::testing {
namespace {

using checkpoint::DType;
using checkpoint::Tensor;

class RandomCheckpoint final : public checkpoint::Checkpoint {
 public:
  RandomCheckpoint(const checkpoint::ModelMetadata& metadata, DType matrices, unsigned seed,
                   bool act_order)
      : metadata_(metadata), matrices_(matrices), random_(seed) {
    AddAll();
    if (act_order) AddColumnOrders();
  }

  const checkpoint::ModelMetadata& metadata() const override { return metadata_; }
  const checkpoint::TextAssets& text_assets() const override { return text_assets_; }
  const Tensor* Find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  const std::map<std::string, Tensor, std::less<>>& tensors() const override { return tensors_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  void AddAll() {
    const int hidden = metadata_.hidden_size;
    AddMatrix("token_embedding.weight", metadata_.vocab_size, hidden);
    AddVector("output_norm.weight", hidden, /*center=*/1.0f - metadata_.norm_offset);
    if (!metadata_.tied_embeddings) AddMatrix("output.weight", metadata_.vocab_size, hidden);
    for (int layer = 0; layer < metadata_.num_layers; ++layer) {
      AddLayer(absl::StrCat("layers.", layer, "."));
    }
  }

  void AddColumnOrders() {
    for (auto& [name, tensor] : tensors_) {
      if (tensor.shape.size() != 2 || name == "token_embedding.weight") continue;
      std::vector<std::int32_t>& order = orders_[name];
      order.resize(tensor.columns());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random_);
      tensor.column_order = order;
    }
    for (int layer = 0; layer < metadata_.num_layers; ++layer) {
      const std::string prefix = absl::StrCat("layers.", layer, ".");
      tensors_[prefix + "k.weight"].column_order = orders_[prefix + "q.weight"];
    }
  }

  void AddLayer(const std::string& prefix) {
    const int hidden = metadata_.hidden_size;
    const int q_columns = metadata_.num_heads * metadata_.head_dim;
    const int kv_columns = metadata_.num_kv_heads * metadata_.head_dim;
    const float norm = 1.0f - metadata_.norm_offset;
    AddVector(prefix + "attention_norm.weight", hidden, norm);
    AddVector(prefix + "mlp_norm.weight", hidden, norm);
    if (metadata_.post_norms) {
      AddVector(prefix + "attention_post_norm.weight", hidden, norm);
      AddVector(prefix + "mlp_post_norm.weight", hidden, norm);
    }
    if (metadata_.qk_norm) {
      AddVector(prefix + "q_norm.weight", metadata_.head_dim, norm);
      AddVector(prefix + "k_norm.weight", metadata_.head_dim, norm);
    }
    AddLinear(prefix + "q", q_columns, hidden, metadata_.attention_bias);
    AddLinear(prefix + "k", kv_columns, hidden, metadata_.attention_bias);
    AddLinear(prefix + "v", kv_columns, hidden, metadata_.attention_bias);
    AddLinear(prefix + "o", hidden, q_columns, metadata_.output_bias);
    if (metadata_.num_experts == 0) {
      AddMlp(prefix, metadata_.intermediate_size);
      return;
    }
    AddMatrix(prefix + "router.weight", metadata_.num_experts, hidden);
    for (int expert = 0; expert < metadata_.num_experts; ++expert) {
      AddMlp(absl::StrCat(prefix, "experts.", expert, "."), metadata_.expert_intermediate_size);
    }
  }

  void AddMlp(const std::string& prefix, int intermediate_size) {
    const int hidden = metadata_.hidden_size;
    AddLinear(prefix + "gate", intermediate_size, hidden, metadata_.mlp_bias);
    AddLinear(prefix + "up", intermediate_size, hidden, metadata_.mlp_bias);
    AddLinear(prefix + "down", hidden, intermediate_size, metadata_.mlp_bias);
  }

  void AddLinear(const std::string& name, int rows, int columns, bool bias) {
    AddMatrix(name + ".weight", rows, columns);
    if (bias) AddVector(name + ".bias", rows, 0.0f);
  }

  void AddVector(const std::string& name, int count, float center) {
    std::normal_distribution<float> normal(center, 0.2f);
    std::vector<std::byte> bytes(count * sizeof(float));
    for (int i = 0; i < count; ++i) {
      const float value = normal(random_);
      std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
    }
    Add(name, DType::kF32, {count}, std::move(bytes));
  }

  void AddMatrix(const std::string& name, int rows, int columns) {
    const int block = checkpoint::BlockElements(matrices_);
    BATON_CHECK(columns % block == 0, "columns must be whole blocks");
    const std::size_t num_blocks = static_cast<std::size_t>(rows) * (columns / block);
    const std::size_t block_bytes = checkpoint::BlockBytes(matrices_);
    std::vector<std::byte> bytes(num_blocks * block_bytes);
    // Keeps the products of a unit row near unit size.
    const float deviation = 1.0f / std::sqrt(static_cast<float>(columns));
    for (std::size_t i = 0; i < num_blocks; ++i)
      FillBlock(bytes.data() + i * block_bytes, deviation);
    Add(name, matrices_, {rows, columns}, std::move(bytes));
  }

  void FillBlock(std::byte* block, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    if (matrices_ == DType::kF32) {
      const float value = normal(random_);
      std::memcpy(block, &value, sizeof(value));
      return;
    }
    if (matrices_ == DType::kF16 || matrices_ == DType::kBF16) {
      const float value = normal(random_);
      const std::uint16_t bits = matrices_ == DType::kF16 ? checkpoint::FloatToHalf(value)
                                                          : checkpoint::FloatToBFloat16(value);
      std::memcpy(block, &bits, sizeof(bits));
      return;
    }
    const int block_bytes = checkpoint::BlockBytes(matrices_);
    for (int i = 0; i < block_bytes; ++i) block[i] = static_cast<std::byte>(random_());
    SetScales(block, deviation);
  }

  // Overwrites the block's half-precision scales, which random bytes could make infinite.
  void SetScales(std::byte* block, float deviation) {
    std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
    const auto set = [&](int offset, float value) {
      const std::uint16_t bits = checkpoint::FloatToHalf(value * deviation * uniform(random_));
      std::memcpy(block + offset, &bits, sizeof(bits));
    };
    switch (matrices_) {
      case DType::kQ8_0:
        return set(0, 1.0f / 70);
      case DType::kQ4_0:
        return set(0, 1.0f / 5);
      case DType::kQ4_1:
        set(0, 1.0f / 5);
        return set(2, -7.5f / 5);
      case DType::kQ5_0:
        return set(0, 1.0f / 10);
      case DType::kQ5_1:
        set(0, 1.0f / 10);
        return set(2, -15.5f / 10);
      case DType::kQ4_K:
        set(0, 1.0f / 150);
        return set(2, 7.5f / 150);
      case DType::kQ5_K:
        set(0, 1.0f / 300);
        return set(2, 15.5f / 300);
      case DType::kQ6_K:
        return set(208, 1.0f / 1300);
      case DType::kQ2_K:
        set(80, 1.0f / 9);
        return set(82, 1.5f / 9);
      case DType::kQ3_K:
        return set(108, 1.0f / 45);
      case DType::kIQ4_NL:
        return set(0, 1.0f / 70);
      case DType::kIQ4_XS:
        return set(0, 1.0f / 1300);
      case DType::kMXFP4: {  // the power of two below deviation / 3, since the values go to 6
        block[0] = static_cast<std::byte>(127 + std::ilogb(deviation / 3));
        return;
      }
      case DType::kInt4:
        set(0, 1.0f / 5);
        block[2] = static_cast<std::byte>(random_() % 17);
        return;
      default:
        return;
    }
  }

  void Add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           std::vector<std::byte> bytes) {
    const std::vector<std::byte>& kept = storage_[name] = std::move(bytes);
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    tensor.data = kept;
    tensors_[name] = std::move(tensor);
  }

  const checkpoint::ModelMetadata metadata_;
  const checkpoint::TextAssets text_assets_;
  const std::string fingerprint_ = "random";
  const DType matrices_;
  std::mt19937 random_;
  std::map<std::string, std::vector<std::byte>> storage_;
  std::map<std::string, std::vector<std::int32_t>> orders_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace

checkpoint::ModelMetadata TinyMetadata() {
  checkpoint::ModelMetadata metadata;
  metadata.architecture = "llama";
  metadata.name = "random";
  metadata.format = "memory";
  metadata.hidden_size = 64;
  metadata.num_layers = 2;
  metadata.num_heads = 4;
  metadata.num_kv_heads = 2;
  metadata.head_dim = 16;
  metadata.intermediate_size = 96;
  metadata.vocab_size = 131;
  metadata.max_context = 256;
  metadata.tied_embeddings = true;
  metadata.rope.dim = 16;
  return metadata;
}

std::shared_ptr<const checkpoint::Checkpoint> MakeRandomCheckpoint(
    const checkpoint::ModelMetadata& metadata, checkpoint::DType matrices, unsigned seed,
    bool act_order) {
  return std::make_shared<RandomCheckpoint>(metadata, matrices, seed, act_order);
}

}  // namespace baton::testing
