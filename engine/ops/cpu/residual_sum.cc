#include "engine/ops/cpu/residual_sum.h"

#include "common/status.h"
#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/row_loop.h"

namespace baton::engine::cpu {

absl::StatusOr<float*> ResidualSum::Start(Matrix x, bool post_norm) {
  written_ = nullptr;
  if (post_norm) written_ = own_.Reserve(static_cast<std::size_t>(x.rows) * x.columns);
  if (!link_.alone()) {
    BATON_ASSIGN_OR_RETURN(written_, link_.Sum(x.rows, x.columns));
  }
  return written_;
}

absl::Status ResidualSum::Finish(std::span<const float> post_norm, float eps, Matrix x) {
  BATON_RETURN_IF_ERROR(link_.Meet());
  if (written_ == nullptr) return absl::OkStatus();
  ForRows(pool_, x.rows, [&](int row, int) {
    const std::size_t at = static_cast<std::size_t>(row) * x.columns;
    const float* from = written_ + at;
    if (!post_norm.empty()) {
      RmsNormRow(from, post_norm.data(), eps, x.columns, own_.data() + at);
      from = own_.data() + at;
    }
    float* to = x.f32() + at;
    for (int i = 0; i < x.columns; ++i) to[i] += from[i];
  });
  return absl::OkStatus();
}

}  // namespace baton::engine::cpu
