#include <algorithm>

#include "absl/strings/str_format.h"
#include "bench/gpu/kernel_cases.h"
#include "bench/gpu/random_matrix.h"
#include "common/status.h"
#include "engine/ops/cuda/matmul.h"

namespace baton::bench {
namespace {

using engine::cuda::DeviceMatrix;
using engine::cuda::Matmul;

struct MatrixCase {
  const char* what;
  const char* format;
  int rows, columns;
  const DeviceMatrix* matrix;
};

absl::Status MeasureProduct(const MatrixCase& one, int num_rows, Matmul& matmul, DeviceTimer& timer,
                            std::vector<Measurement>& out) {
  BATON_ASSIGN_OR_RETURN(const auto x, RandomActivations(num_rows, one.columns));
  BATON_ASSIGN_OR_RETURN(const auto y,
                         gpu::DeviceBuffer::Create(std::size_t{2} * num_rows * one.rows));
  BATON_ASSIGN_OR_RETURN(const double seconds, timer.Time([&] {
    return matmul.Multiply(*one.matrix, {.x = x.data(), .num_rows = num_rows, .y = y.data()},
                           timer.stream());
  }));
  out.push_back(
      {.name = absl::StrFormat("matmul %s", one.format),
       .shape = absl::StrFormat("%s: %d rows, %d x %d", one.what, num_rows, one.rows, one.columns),
       .bytes =
           static_cast<double>(one.matrix->bytes()) + 2.0 * num_rows * (one.rows + one.columns),
       .flops = 2.0 * num_rows * one.rows * one.columns,
       .seconds = seconds});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureMatmul(const KernelBenchOptions& options, DeviceTimer& timer,
                           std::vector<Measurement>& out) {
  const ModelShape& model = options.model;
  BATON_ASSIGN_OR_RETURN(const auto matmul, Matmul::Create({}));
  std::vector<int> rows = options.decode_rows;
  rows.insert(rows.end(), options.prefill_rows.begin(), options.prefill_rows.end());
  const int qkv = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim;
  const struct {
    const char* what;
    int rows, columns;
  } maps[] = {{"qkv", qkv, model.hidden},
              {"gate_up", 2 * model.intermediate, model.hidden},
              {"down", model.hidden, model.intermediate}};
  for (const auto& map : maps) {
    BATON_ASSIGN_OR_RETURN(const auto dense, RandomDenseMatrix(map.rows, map.columns));
    BATON_ASSIGN_OR_RETURN(const auto int8,
                           RandomQuantizedMatrix(checkpoint::DType::kQ8_0, map.rows, map.columns));
    BATON_ASSIGN_OR_RETURN(const auto int4,
                           RandomQuantizedMatrix(checkpoint::DType::kQ4_1, map.rows, map.columns));
    const MatrixCase cases[] = {{map.what, "bf16", map.rows, map.columns, &dense},
                                {map.what, "int8", map.rows, map.columns, &int8},
                                {map.what, "int4", map.rows, map.columns, &int4}};
    for (const MatrixCase& one : cases) {
      for (const int num_rows : rows) {
        BATON_RETURN_IF_ERROR(MeasureProduct(one, num_rows, *matmul, timer, out));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::bench
