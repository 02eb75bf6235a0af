#include "engine/ops/cuda/kernels/rope_angles.h"

#include <cstdint>

#include "engine/model/rope.h"
#include "tests/support/cuda_test.h"
#include "tests/support/kernel_values.h"

namespace baton::engine::cuda {
namespace {

using checkpoint::RopeMetadata;
using checkpoint::RopeScaling;

class RopeAnglesTest : public testing::CudaTest {
 protected:
  // Floats between the two, an order of magnitude: 0 where equal in every bit.
  static std::int64_t UlpsBetween(float a, float b) {
    const auto ordered = [](float x) {
      std::int32_t bits;
      std::memcpy(&bits, &x, sizeof(bits));
      return bits < 0 ? std::int64_t{INT32_MIN} - bits : std::int64_t{bits};
    };
    return std::abs(ordered(a) - ordered(b));
  }

  void ExpectAnglesOf(const Rope& rope, const std::vector<int>& positions,
                      const std::vector<int>& lengths) {
    const std::size_t count = positions.size() * (rope.dim / 2);
    const auto frequencies = ToDevice(rope.frequencies);
    const auto long_frequencies = ToDevice(rope.long_frequencies);
    const auto device_positions = ToDevice(positions), device_lengths = ToDevice(lengths);
    const auto cos = OnDevice(count * sizeof(float)), sin = OnDevice(count * sizeof(float));
    const DeviceRope device_rope{
        .dim = rope.dim,
        .magnitude = rope.magnitude,
        .short_length = rope.short_length,
        .frequencies = frequencies.as<double>(),
        .long_frequencies = rope.long_frequencies.empty() ? nullptr : long_frequencies.as<double>(),
        .theta = rope.theta,
        .factor = rope.factor};

    testing::ExpectCuda(ComputeRopeAngles(
        device_rope, device_positions.as<int>(), device_lengths.as<int>(),
        static_cast<int>(positions.size()), cos.as<float>(), sin.as<float>(), stream()));

    RopeAngleBuffer buffer;
    const RopeAngles want = buffer.Compute({&rope, 1}, positions, lengths)[0];
    const auto got_cos = ToHost<float>(cos, count), got_sin = ToHost<float>(sin, count);
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i) {
      different += got_cos[i] != want.cos[i] || got_sin[i] != want.sin[i];
      ASSERT_LE(UlpsBetween(got_cos[i], want.cos[i]), 1) << "pair " << i;
      ASSERT_LE(UlpsBetween(got_sin[i], want.sin[i]), 1) << "pair " << i;
    }
    // A device's cosine in double may differ in its last bits; that such a difference survives the
    // rounding to float takes a value within 1e-9 of a boundary.
    EXPECT_LE(different, count / 1000);
  }
};

TEST_F(RopeAnglesTest, EqualsTheHostsAnglesForEveryScaling) {
  std::mt19937 random(4);
  RopeMetadata metadata;
  metadata.dim = 48;
  metadata.theta = 10000.0f;
  metadata.factor = 4.0f;
  metadata.original_max_position = 100;
  metadata.low_frequency_factor = 1.0f;
  metadata.high_frequency_factor = 4.0f;
  for (int i = 0; i < metadata.dim / 2; ++i) {
    metadata.short_factors.push_back(1.0f + 0.01f * static_cast<float>(i));
    metadata.long_factors.push_back(2.0f + 0.1f * static_cast<float>(i));
  }
  for (const RopeScaling scaling :
       {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kDynamic, RopeScaling::kLlama3,
        RopeScaling::kYarn, RopeScaling::kLongRope}) {
    SCOPED_TRACE(static_cast<int>(scaling));
    metadata.scaling = scaling;
    const auto rope = MakeRope(metadata, /*head_dim=*/64);
    ASSERT_TRUE(rope.ok()) << rope.status();
    std::vector<int> positions, lengths;
    for (int row = 0; row < 60; ++row) {
      positions.push_back(static_cast<int>(row < 40 ? row * 5 : random() % 130000));
      lengths.push_back(std::max(positions.back() + 1, static_cast<int>(random() % 200)));
    }
    ExpectAnglesOf(*rope, positions, lengths);
  }
}

}  // namespace
}  // namespace baton::engine::cuda
