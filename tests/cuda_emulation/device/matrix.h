#pragma once
// Tensor-core instructions: mma.sync and ldmatrix, with the fragment layouts of the PTX ISA
// (section "Warp-level matrix instructions").
#include <bit>
#include <cstdint>

#include "cuda_emulation/device/warp.h"

namespace cuda_emulation {

template <class Accumulator>
struct MmaArguments {
  Accumulator* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
  const Accumulator* c;
};

// Element `index` of a register that holds 32 / (8 * sizeof(T)) of them.
template <class T>
CUDA_EMULATION_NO_TSAN float Element16(std::uint32_t packed, int index) {
  return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(packed >> 16 * index)));
}

// d = a b + c for m16n8k16 of 16-bit floats: a row-major 16x16, b column-major 16x8. The
// accumulator starts from c and adds products by ascending k.
template <class T>
CUDA_EMULATION_NO_TSAN void RunMma16(void* const* arguments, std::uint32_t) {
  float a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto* self = static_cast<MmaArguments<float>*>(arguments[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 2; ++i) {
      a[group][pair + i] = Element16<T>(self->a[0], i);
      a[group + 8][pair + i] = Element16<T>(self->a[1], i);
      a[group][pair + 8 + i] = Element16<T>(self->a[2], i);
      a[group + 8][pair + 8 + i] = Element16<T>(self->a[3], i);
      b[pair + i][group] = Element16<T>(self->b[0], i);
      b[pair + 8 + i][group] = Element16<T>(self->b[1], i);
      d[group][pair + i] = self->c[i];
      d[group + 8][pair + i] = self->c[2 + i];
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto* self = static_cast<MmaArguments<float>*>(arguments[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 2; ++i) {
      self->d[i] = d[group][pair + i];
      self->d[2 + i] = d[group + 8][pair + i];
    }
  }
}

// The same for m16n8k32 of signed bytes, in 32-bit integers.
CUDA_EMULATION_NO_TSAN inline void RunMmaInt8(void* const* arguments, std::uint32_t) {
  int a[16][32], b[32][8], d[16][8];
  const auto element = [](std::uint32_t packed, int index) {
    return static_cast<int>(static_cast<signed char>(packed >> 8 * index));
  };
  for (int lane = 0; lane < 32; ++lane) {
    const auto* self = static_cast<MmaArguments<int>*>(arguments[lane]);
    const int group = lane / 4, quad = lane % 4 * 4;
    for (int i = 0; i < 4; ++i) {
      a[group][quad + i] = element(self->a[0], i);
      a[group + 8][quad + i] = element(self->a[1], i);
      a[group][quad + 16 + i] = element(self->a[2], i);
      a[group + 8][quad + 16 + i] = element(self->a[3], i);
      b[quad + i][group] = element(self->b[0], i);
      b[quad + 16 + i][group] = element(self->b[1], i);
    }
    for (int i = 0; i < 2; ++i) {
      d[group][quad / 2 + i] = self->c[i];
      d[group + 8][quad / 2 + i] = self->c[2 + i];
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 32; ++k) {
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto* self = static_cast<MmaArguments<int>*>(arguments[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 2; ++i) {
      self->d[i] = d[group][pair + i];
      self->d[2 + i] = d[group + 8][pair + i];
    }
  }
}

struct LoadMatrixArguments {
  std::uint32_t* out;
  const void* row;  // 16 bytes in shared memory
  int matrices;     // 1, 2 or 4; lane i gives row i % 8 of matrix i / 8
  bool transpose;
};

// The read of shared memory stays visible to TSan; the exchange between lanes does not.
__attribute__((noinline)) inline std::uint16_t LoadShared(const void* row, int column) {
  return static_cast<const std::uint16_t*>(row)[column];
}
CUDA_EMULATION_NO_TSAN inline void RunLoadMatrix(void* const* arguments, std::uint32_t) {
  for (int lane = 0; lane < 32; ++lane) {
    auto* self = static_cast<LoadMatrixArguments*>(arguments[lane]);
    for (int matrix = 0; matrix < self->matrices; ++matrix) {
      std::uint32_t packed = 0;
      for (int i = 0; i < 2; ++i) {
        const int row = self->transpose ? lane % 4 * 2 + i : lane / 4;
        const int column = self->transpose ? lane / 4 : lane % 4 * 2 + i;
        const auto* owner = static_cast<LoadMatrixArguments*>(arguments[matrix * 8 + row]);
        packed |= std::uint32_t{LoadShared(owner->row, column)} << 16 * i;
      }
      self->out[matrix] = packed;
    }
  }
}

}  // namespace cuda_emulation
