#include "engine/sampling/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "engine/sampling/sampler.h"

namespace baton::engine {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers published with Random123 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, CounterUniformIsEvenlySpreadBelowOne) {
  std::array<int, 10> bins{};
  constexpr int kDraws = 100000;

  for (int position = 0; position < kDraws; ++position) {
    const double value = CounterUniform(/*seed=*/12345, position);
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    ++bins[static_cast<int>(value * 10)];
  }

  double chi_squared = 0;
  for (const int count : bins) chi_squared += (count - 1e4) * (count - 1e4) / 1e4;
  EXPECT_LT(chi_squared, 27.9);  // 9 degrees of freedom, p = 0.001
}

TEST(PhiloxTest, EverySeedBitAndPositionBitCounts) {
  const double base = CounterUniform(7, 9);

  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(CounterUniform(7 ^ std::uint64_t{1} << bit, 9), base) << "seed bit " << bit;
    EXPECT_NE(CounterUniform(7, 9 ^ std::uint64_t{1} << bit), base) << "position bit " << bit;
  }
}

}  // namespace
}  // namespace baton::engine
