#include "engine/ops/reference/rms_norm.h"

#include <cmath>
#include <cstddef>

namespace baton::engine::reference {

void RmsNormRow(std::span<const float> x, std::span<const float> weight, float eps, float* out) {
  // The sum is kept in double: rows with one huge element would lose the small ones in float.
  double sum_of_squares = 0.0;
  for (const float value : x) sum_of_squares += static_cast<double>(value) * value;
  const float scale = static_cast<float>(1.0 / std::sqrt(sum_of_squares / x.size() + eps));
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
}

}  // namespace baton::engine::reference
