#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::engine {
namespace {

using checkpoint::RopeMetadata;
using checkpoint::RopeScaling;

std::vector<double> PlainFrequencies(double theta, int dim) {
  std::vector<double> frequencies(dim / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
  }
  return frequencies;
}

// Llama 3.1's scaling: long waves are slowed by `factor`, short ones kept, those between blended.
double ScaleLlama3(const RopeMetadata& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = rope.original_max_position;
  if (wavelength < original / rope.high_frequency_factor) return frequency;
  if (wavelength > original / rope.low_frequency_factor) return frequency / rope.factor;
  const double smooth = (original / wavelength - rope.low_frequency_factor) /
                        (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// The dimension that turns `rotations` times over the original context.
double YarnDimension(const RopeMetadata& rope, double rotations) {
  return rope.dim * std::log(rope.original_max_position / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(rope.theta)));
}

// YaRN (arXiv:2309.00071): slow dimensions interpolated, fast ones kept, a ramp between.
void ScaleYarn(const RopeMetadata& rope, std::vector<double>& frequencies) {
  double low = YarnDimension(rope, rope.beta_fast);
  double high = YarnDimension(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

float Magnitude(const RopeMetadata& rope) {
  if (rope.attention_factor > 0) return rope.attention_factor;
  const double factor = rope.factor;
  if (rope.scaling == RopeScaling::kYarn) {
    if (rope.mscale > 0 && rope.mscale_all_dim > 0) {
      return static_cast<float>(YarnMagnitude(factor, rope.mscale) /
                                YarnMagnitude(factor, rope.mscale_all_dim));
    }
    return static_cast<float>(YarnMagnitude(factor, 1.0));
  }
  if (rope.scaling == RopeScaling::kLongRope && factor > 1) {
    return static_cast<float>(std::sqrt(
        1 + std::log(factor) / std::log(static_cast<double>(rope.original_max_position))));
  }
  return 1.0f;
}

absl::Status CheckFactors(const char* which, const std::vector<float>& factors, int dim) {
  if (static_cast<int>(factors.size()) == dim / 2) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "longrope %s factors: %d of them, expected %d (half of the rotated dimensions)", which,
      factors.size(), dim / 2));
}

absl::Status Check(const RopeMetadata& rope, int head_dim) {
  if (rope.dim <= 0 || rope.dim % 2 != 0 || rope.dim > head_dim) {
    return absl::FailedPreconditionError(
        absl::StrFormat("rope dimension out of range: %d, must be even and in 2..%d (head_dim)",
                        rope.dim, head_dim));
  }
  if (rope.scaling == RopeScaling::kNone) return absl::OkStatus();
  if (!(rope.factor > 0)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("rope scaling factor must be positive: %g", rope.factor));
  }
  if (rope.scaling == RopeScaling::kLinear) return absl::OkStatus();
  if (rope.original_max_position <= 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "rope scaling with impossible values: original context %d, must be positive",
        rope.original_max_position));
  }
  if (rope.scaling == RopeScaling::kDynamic && rope.dim <= 2) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "dynamic rope scaling needs more than 2 rotated dimensions, has %d", rope.dim));
  }
  if (rope.scaling == RopeScaling::kLlama3 &&
      (!(rope.low_frequency_factor > 0) ||
       !(rope.high_frequency_factor > rope.low_frequency_factor))) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "llama3 rope scaling with impossible values: original context %d, frequency factors %g, %g",
        rope.original_max_position, rope.low_frequency_factor, rope.high_frequency_factor));
  }
  if (rope.scaling == RopeScaling::kLongRope) {
    BATON_RETURN_IF_ERROR(CheckFactors("short", rope.short_factors, rope.dim));
    BATON_RETURN_IF_ERROR(CheckFactors("long", rope.long_factors, rope.dim));
  }
  return absl::OkStatus();
}

void Divide(std::vector<double>& frequencies, const std::vector<float>& factors) {
  for (std::size_t i = 0; i < factors.size(); ++i) frequencies[i] /= factors[i];
}

// Dynamic NTK scaling: a base that grows with the text.
double DynamicBase(const Rope& rope, int length) {
  const double stretch = rope.factor * length / rope.short_length - (rope.factor - 1);
  return rope.theta * std::pow(stretch, rope.dim / (rope.dim - 2.0));
}

void WriteAngles(std::span<const double> frequencies, float magnitude, int position, float* cos,
                 float* sin) {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = position * frequencies[i];
    cos[i] = static_cast<float>(std::cos(angle)) * magnitude;
    sin[i] = static_cast<float>(std::sin(angle)) * magnitude;
  }
}

void WriteRow(const Rope& rope, int position, int length, float* cos, float* sin) {
  if (rope.short_length == 0 || length <= rope.short_length) {
    WriteAngles(rope.frequencies, rope.magnitude, position, cos, sin);
  } else if (!rope.long_frequencies.empty()) {
    WriteAngles(rope.long_frequencies, rope.magnitude, position, cos, sin);
  } else {
    WriteAngles(PlainFrequencies(DynamicBase(rope, length), rope.dim), rope.magnitude, position,
                cos, sin);
  }
}

}  // namespace

absl::StatusOr<Rope> MakeRope(const RopeMetadata& metadata, int head_dim) {
  BATON_RETURN_IF_ERROR(Check(metadata, head_dim));
  Rope rope{.dim = metadata.dim,
            .interleaved = metadata.interleaved,
            .magnitude = Magnitude(metadata),
            .frequencies = PlainFrequencies(metadata.theta, metadata.dim),
            .short_length = 0,
            .long_frequencies = {},
            .theta = metadata.theta,
            .factor = metadata.factor};
  switch (metadata.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& frequency : rope.frequencies) frequency /= metadata.factor;
      break;
    case RopeScaling::kDynamic:
      rope.short_length = metadata.original_max_position;
      break;
    case RopeScaling::kLlama3:
      for (double& frequency : rope.frequencies) frequency = ScaleLlama3(metadata, frequency);
      break;
    case RopeScaling::kYarn:
      ScaleYarn(metadata, rope.frequencies);
      break;
    case RopeScaling::kLongRope:
      rope.short_length = metadata.original_max_position;
      rope.long_frequencies = rope.frequencies;
      Divide(rope.frequencies, metadata.short_factors);
      Divide(rope.long_frequencies, metadata.long_factors);
      break;
  }
  Divide(rope.frequencies, metadata.frequency_factors);
  return rope;
}

std::span<const RopeAngles> RopeAngleBuffer::Compute(std::span<const Rope> ropes,
                                                     std::span<const std::int32_t> positions,
                                                     std::span<const std::int32_t> lengths) {
  std::size_t size = 0;
  for (const Rope& rope : ropes) size += positions.size() * rope.dim;
  values_.resize(size);
  angles_.clear();
  float* next = values_.data();
  for (const Rope& rope : ropes) {
    const std::size_t pairs = rope.dim / 2;
    float* cos = next;
    float* sin = cos + positions.size() * pairs;
    next = sin + positions.size() * pairs;
    for (std::size_t t = 0; t < positions.size(); ++t) {
      WriteRow(rope, positions[t], lengths[t], cos + t * pairs, sin + t * pairs);
    }
    angles_.push_back({cos, sin});
  }
  return angles_;
}

}  // namespace baton::engine
