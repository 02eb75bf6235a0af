#include "engine/ops/reference/activation.h"

#include <cmath>
#include <numbers>

#include "common/check.h"

namespace baton::engine::reference {

float Activate(Activation activation, float z) {
  const double x = z;
  switch (activation) {
    case Activation::kSilu:
      return static_cast<float>(x / (1 + std::exp(-x)));
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return static_cast<float>(0.5 * x * (1 + std::tanh(inner)));
    }
    case Activation::kGelu:
      // erfc keeps the digits that 1 + erf would lose where both nearly cancel.
      return static_cast<float>(0.5 * x * std::erfc(-x / std::numbers::sqrt2));
  }
  BATON_CHECK(false, "no such activation");
}

void Gate(Activation activation, const float* up, std::size_t count, float* gate) {
  for (std::size_t i = 0; i < count; ++i) gate[i] = Activate(activation, gate[i]) * up[i];
}

}  // namespace baton::engine::reference
