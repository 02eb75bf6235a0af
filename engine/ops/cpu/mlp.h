#pragma once
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/model_plan.h"
#include "engine/ops/cpu/activation_buffer.h"
#include "engine/ops/cpu/aligned_buffer.h"
#include "engine/ops/cpu/cpu_weights.h"
#include "engine/ops/cpu/expert_routing.h"
#include "engine/ops/cpu/matmul.h"
#include "engine/ops/cpu/ordered_input.h"
#include "engine/ops/cpu/rank_link.h"
#include "engine/ops/cpu/residual_sum.h"
#include "engine/ops/ops.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// The MLP of a layer, plain or a mixture of experts. A mixture chooses the experts of every row,
// copies the rows of each expert side by side, computes all experts in one loop over (expert, rows,
// output columns), and sums each row's results in the order of the experts: weights of experts that
// no row chose are not read, and no bit of a row depends on the others. Keeps its scratch memory
// between calls. Thread-compatible.
class Mlp {
 public:
  Mlp(ThreadPool& pool, RankLink& link, ComputeMode compute);

  // As Ops::Mlp.   x: [num_rows, hidden]
  absl::Status Run(const LayerPlan& plan, const CpuLayer& layer, Matrix x);

 private:
  // Rows of activations that one MLP computes.
  struct Share {
    const MlpWeights* mlp = nullptr;
    RowRange rows;
  };
  // Adds the MLP of all rows of `n` to x or, where `added` is not null, writes it there.
  absl::Status RunPlain(const LayerPlan& plan, const CpuLayer& layer, const Activations& n,
                        Matrix x, float* added);
  // The same of the mixture of experts of the rows that Route saw.
  absl::Status RunExperts(const LayerPlan& plan, const CpuLayer& layer, const Activations& n,
                          Matrix x, float* added);
  // Fills groups_ and choices_.   n: as floats only
  void Route(const LayerPlan& plan, const Linear& router, const Activations& n);
  // act(gate) * up of the rows of every share, in the forms that its down matrices read: the
  // columns of all ranks. Meets the others.
  absl::StatusOr<Activations> GateUp(Activation activation, const CpuLayer& layer,
                                     std::span<const Share> shares, const Activations& x);
  // Memory of a hidden layer, all columns, and the view of it. What is null is not wanted.
  struct Hidden {
    Activations view;
    float* floats = nullptr;
    QuantizedGroup* groups = nullptr;
  };
  absl::StatusOr<Hidden> ReserveHidden(int num_rows, int columns, const ActivationForms& forms);
  // Computes the columns of this rank, the first of which is `first_column`.
  void FillHidden(Activation activation, std::span<const Share> shares, const Activations& x,
                  int first_column, const Hidden& to);
  // Fills products_ with one map of every share.
  void SetProducts(std::span<const Share> shares, Linear MlpWeights::*map);
  // Hands down * h of the rows of every share to the sink of MatMul.
  template <class Sink>
  void Down(std::span<const Share> shares, const Activations& h, const Sink& sink);

  ThreadPool& pool_;
  RankLink& link_;
  ResidualSum sum_;
  const ComputeMode compute_;
  ActivationBuffer input_, gathered_, hidden_;
  OrderedInput gate_input_, up_input_, down_input_;  // the same, where weights have an order
  ExpertGroups groups_;
  std::vector<ExpertChoice> choices_;  // [num_rows, experts_per_token]
  std::vector<Share> shares_;
  std::vector<Product> products_;
  AlignedBuffer<float> logits_;      // [num_rows, num_experts]
  AlignedBuffer<float> expert_out_;  // [slots, hidden columns of this rank]
};

}  // namespace baton::engine::cpu
