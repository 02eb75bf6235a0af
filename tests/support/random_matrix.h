#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "checkpoint/tensor.h"

namespace baton::testing {

inline const std::vector<checkpoint::DType>& AllDTypes() {
  using checkpoint::DType;
  static const std::vector<DType> all = {
      DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ8_0,  DType::kQ4_0, DType::kQ4_1,
      DType::kQ5_0, DType::kQ5_1,   DType::kQ4_K,   DType::kQ5_K,  DType::kQ6_K, DType::kQ2_K,
      DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4, DType::kInt4};
  return all;
}

// Owns a matrix of any dtype with random contents: every pattern of quants and packed scales, with
// f16 scales of a few hundredths so that values stay near 1.
class RandomMatrix {
 public:
  RandomMatrix(checkpoint::DType dtype, int rows, int columns, std::mt19937& random) {
    const int elements = checkpoint::BlockElements(dtype);
    const int block_bytes = checkpoint::BlockBytes(dtype);
    const std::size_t blocks = static_cast<std::size_t>(rows) * columns / elements;
    bytes_.resize(blocks * block_bytes);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    for (std::size_t b = 0; b < blocks; ++b) FixFloats(dtype, &bytes_[b * block_bytes], random);
    tensor_ = {.name = "random", .dtype = dtype, .shape = {rows, columns}, .data = bytes_};
  }
  RandomMatrix(const RandomMatrix&) = delete;
  RandomMatrix& operator=(const RandomMatrix&) = delete;

  const checkpoint::Tensor& tensor() const { return tensor_; }
  // Row `row` as its format defines it.
  std::vector<float> Row(int row) const {
    std::vector<float> values(tensor_.columns());
    checkpoint::DequantizeRow(tensor_.dtype, bytes_.data() + row * tensor_.row_bytes(),
                              tensor_.columns(), values.data());
    return values;
  }

 private:
  static void FixFloats(checkpoint::DType dtype, std::byte* block, std::mt19937& random) {
    using checkpoint::DType;
    std::uniform_real_distribution<float> value(-1.0f, 1.0f);
    const auto put_half = [&](int offset, float scale) {
      const std::uint16_t half = checkpoint::FloatToHalf(value(random) * scale);
      std::memcpy(block + offset, &half, 2);
    };
    const float f32 = value(random);
    switch (dtype) {
      case DType::kF32:
        std::memcpy(block, &f32, 4);
        break;
      case DType::kF16:
        put_half(0, 1.0f);
        break;
      case DType::kBF16: {
        const std::uint16_t bits = checkpoint::FloatToBFloat16(f32);
        std::memcpy(block, &bits, 2);
        break;
      }
      case DType::kQ8_0:
        put_half(0, 0.01f);
        break;
      case DType::kQ4_0:
      case DType::kQ5_0:
        put_half(0, 0.1f);
        break;
      case DType::kQ4_1:
      case DType::kQ5_1:
        put_half(0, 0.1f), put_half(2, 1.0f);
        break;
      case DType::kQ4_K:
      case DType::kQ5_K:
        put_half(0, 0.003f), put_half(2, 0.03f);
        break;
      case DType::kQ6_K:
        put_half(208, 0.001f);
        break;
      case DType::kQ2_K:
        put_half(80, 0.03f), put_half(82, 0.03f);
        break;
      case DType::kQ3_K:
        put_half(108, 0.01f);
        break;
      case DType::kIQ4_NL:
        put_half(0, 0.01f);
        break;
      case DType::kIQ4_XS:
        put_half(0, 0.0005f);
        break;
      case DType::kMXFP4:
        block[0] = static_cast<std::byte>(121 + random() % 6);
        break;
      case DType::kInt4:
        put_half(0, 0.1f);
        block[2] = static_cast<std::byte>(random() % 17);
        break;
    }
  }
  std::vector<std::byte> bytes_;
  checkpoint::Tensor tensor_;
};

}  // namespace baton::testing
