#pragma once
#include <bit>
#include <cstdint>

namespace baton::checkpoint {

// What the 16 codes of a 4-bit type with a table stand for, to be multiplied by its scale.

// IQ4_NL and IQ4_XS: kvalues_iq4nl of ggml-common.h.
inline constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

// MXFP4: twice the values of E2M1 (kvalues_mxfp4), so that they are integers; the scale is halved.
// Source: OCP Microscaling Formats (MX) specification 1.0, section 5.3.3.
inline constexpr std::int8_t kFp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};

// Half of the power of two that an E8M0 byte stands for, 2^(exponent - 128).
inline float HalfOfE8M0(std::uint8_t exponent) {
  if (exponent < 2)
    return std::bit_cast<float>(std::uint32_t{0x00200000} << exponent);  // subnormal
  return std::bit_cast<float>((std::uint32_t{exponent} - 1) << 23);
}

}  // namespace baton::checkpoint
