#include "engine/ops/cpu/mlp.h"

#include <algorithm>
#include <cstddef>

#include "common/status.h"
#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/row_loop.h"

namespace baton::engine::cpu {
namespace {

// Rows of a mixture that are computed at once: enough for each of a hundred experts to get some
// dozens, few enough for their copies, experts_per_token each, to take some tens of megabytes.
constexpr int kMixtureRows = 512;

// Rows [first, first + count) of `x`, in `forms`.
Activations Slice(const Activations& x, RowRange rows, const ActivationForms& forms) {
  Activations slice = x;
  slice.num_rows = rows.count;
  slice.floats = forms.floats ? x.floats + rows.first * x.stride : nullptr;
  slice.quantized = forms.quantized ? x.quantized + rows.first * x.groups : nullptr;
  return slice;
}

// One task's block of a hidden layer: the results of two tiles, one group, of gate and up.
struct GateUpBlock {
  alignas(64) float gate[2][kRowBlock * kTileRows];
  alignas(64) float up[2][kRowBlock * kTileRows];
};

void ComputeGateUp(const MlpWeights& mlp, const TaskList::Task& task, const Activations& gate_x,
                   const Activations& up_x, GateUpBlock& block) {
  const auto compute = [&](const Linear& map, const Activations& x, int tile, float* to) {
    ComputeTile(map.matrix, tile, x, task.rows.first, task.rows.count, to);
    const int column = tile * kTileRows;
    const float* bias = map.BiasFrom(column);
    if (bias == nullptr) return;
    const int num_columns = std::min(kTileRows, map.matrix.rows() - column);
    for (int row = 0; row < task.rows.count; ++row, to += kTileRows) {
      for (int i = 0; i < num_columns; ++i) to[i] += bias[i];
    }
  };
  for (int tile = task.first_tile; tile < task.end_tile; ++tile) {
    compute(mlp.gate, gate_x, tile, block.gate[tile - task.first_tile]);
    compute(mlp.up, up_x, tile, block.up[tile - task.first_tile]);
  }
}

}  // namespace

Mlp::Mlp(ThreadPool& pool, RankLink& link, ComputeMode compute)
    : pool_(pool),
      link_(link),
      sum_(pool, link),
      compute_(compute),
      input_(pool),
      gathered_(pool),
      hidden_(pool),
      gate_input_(pool),
      up_input_(pool),
      down_input_(pool) {}

absl::Status Mlp::Run(const LayerPlan& plan, const CpuLayer& layer, Matrix x) {
  ActivationForms forms;
  for (const MlpWeights& mlp : layer.mlps) {
    forms.Add(mlp.gate.matrix, compute_);
    forms.Add(mlp.up.matrix, compute_);
  }
  const Activations n =
      input_.Normalize(x, {}, x.rows, layer.mlp_norm, plan.norm_eps, forms.quantized);
  BATON_ASSIGN_OR_RETURN(float* const added, sum_.Start(x, plan.post_norms));
  if (plan.num_experts == 0) {
    BATON_RETURN_IF_ERROR(RunPlain(plan, layer, n, x, added));
  } else {
    const std::size_t columns = x.columns;
    for (int first = 0; first < x.rows; first += kMixtureRows) {
      // The hidden layer's memory is written anew once no rank reads it any more.
      if (first > 0) BATON_RETURN_IF_ERROR(link_.Meet());
      const RowRange rows{first, std::min(kMixtureRows, x.rows - first)};
      const Matrix part{x.f32() + first * columns, rows.count, x.columns};
      Route(plan, layer.router, Slice(n, rows, {.floats = true}));
      BATON_RETURN_IF_ERROR(RunExperts(plan, layer, Slice(n, rows, forms), part,
                                       added == nullptr ? nullptr : added + first * columns));
    }
  }
  return sum_.Finish(layer.mlp_post_norm, plan.norm_eps, x);
}

absl::Status Mlp::RunPlain(const LayerPlan& plan, const CpuLayer& layer, const Activations& n,
                           Matrix x, float* added) {
  const MlpWeights& mlp = layer.mlps[0];
  const Share all[] = {{&mlp, {0, n.num_rows}}};
  BATON_ASSIGN_OR_RETURN(const Activations h, GateUp(plan.activation, layer, all, n));
  const std::size_t stride = x.columns, first_column = layer.hidden_columns.begin;
  Down(all, h, [&](int, int column, int num_columns, int first_row, int rows, const float* block) {
    const float* bias = mlp.down.BiasFrom(column);
    const std::size_t at = first_row * stride + first_column + column;
    if (added != nullptr) {
      StoreBlock(block, bias, rows, num_columns, stride, added + at);
    } else {
      AddBlock(block, bias, rows, num_columns, stride, x.f32() + at);
    }
  });
  return absl::OkStatus();
}

absl::Status Mlp::RunExperts(const LayerPlan& plan, const CpuLayer& layer, const Activations& n,
                             Matrix x, float* added) {
  shares_.clear();
  for (const ExpertGroups::Group& group : groups_.groups()) {
    shares_.push_back({&layer.mlps[group.expert], {group.first_slot, group.num_slots}});
  }
  BATON_ASSIGN_OR_RETURN(const Activations h, GateUp(plan.activation, layer, shares_,
                                                     gathered_.Gather(n, groups_.rows())));
  const std::size_t columns = layer.hidden_columns.size(), stride = x.columns;
  float* out = expert_out_.Reserve(groups_.rows().size() * columns);
  Down(shares_, h,
       [&](int share, int column, int num_columns, int first_row, int rows, const float* block) {
         StoreBlock(block, shares_[share].mlp->down.BiasFrom(column), rows, num_columns, columns,
                    out + first_row * columns + column);
       });
  // Each row's results weighted and summed, then added to the row as a whole, as a plain MLP's are.
  const int count = plan.experts_per_token;
  ForRows(pool_, x.rows, [&](int row, int) {
    const std::size_t first = static_cast<std::size_t>(row) * count;
    const auto part = [&](int i) { return out + groups_.slots()[first + i] * columns; };
    float* sum = added != nullptr ? added + row * stride + layer.hidden_columns.begin : part(0);
    for (int i = 0; i < count; ++i) {
      const float weight = choices_[first + i].weight;
      const float* from = part(i);
      if (i == 0) {
        for (std::size_t c = 0; c < columns; ++c) sum[c] = weight * from[c];
      } else {
        for (std::size_t c = 0; c < columns; ++c) sum[c] += weight * from[c];
      }
    }
    if (added != nullptr) return;
    float* to = x.f32() + row * stride;
    for (std::size_t c = 0; c < columns; ++c) to[c] += sum[c];
  });
  return absl::OkStatus();
}

// The router's weights are few and its choice is discrete: float products whatever its format.
void Mlp::Route(const LayerPlan& plan, const Linear& router, const Activations& n) {
  const std::size_t stride = plan.num_experts;
  float* logits = logits_.Reserve(n.num_rows * stride);
  const PackedMatrix* parts[] = {&router.matrix};
  MatMul(pool_, gate_input_.Apply(n, router.matrix), parts,
         [&](int, int column, int num_columns, int first_row, int rows, const float* block) {
           StoreBlock(block, router.BiasFrom(column), rows, num_columns, stride,
                      logits + first_row * stride + column);
         });
  const std::size_t count = plan.experts_per_token;
  choices_.resize(n.num_rows * count);
  ForRows(pool_, n.num_rows, [&](int row, int) {
    ChooseExperts(plan, logits + row * stride, choices_.data() + row * count);
  });
  groups_.Assign(choices_, plan.experts_per_token, plan.num_experts);
}

absl::StatusOr<Mlp::Hidden> Mlp::ReserveHidden(int num_rows, int columns,
                                               const ActivationForms& forms) {
  Hidden hidden;
  if (link_.alone()) {
    hidden.view = hidden_.Reserve(num_rows, columns, forms);
    hidden.floats = forms.floats ? hidden_.floats() : nullptr;
    hidden.groups = forms.quantized ? hidden_.groups() : nullptr;
    return hidden;
  }
  hidden.view = {.stride = static_cast<std::size_t>(columns),
                 .groups = static_cast<std::size_t>(columns) / kGroup,
                 .num_rows = num_rows};
  if (forms.floats) {
    BATON_ASSIGN_OR_RETURN(hidden.floats, link_.HiddenFloats(num_rows, columns));
  }
  if (forms.quantized) {
    BATON_ASSIGN_OR_RETURN(hidden.groups, link_.HiddenGroups(num_rows, columns / kGroup));
  }
  hidden.view.floats = hidden.floats;
  hidden.view.quantized = hidden.groups;
  return hidden;
}

absl::StatusOr<Activations> Mlp::GateUp(Activation activation, const CpuLayer& layer,
                                        std::span<const Share> shares, const Activations& x) {
  ActivationForms forms;
  for (const Share& share : shares) forms.Add(share.mlp->down.matrix, compute_);
  const int columns = shares[0].mlp->down.matrix.columns();
  // Where ranks meet inside of groups, nobody has a whole one to quantize until all have met.
  const bool quantize_later = forms.quantized && !link_.deals_groups(columns);
  BATON_ASSIGN_OR_RETURN(
      const Hidden hidden,
      ReserveHidden(x.num_rows, columns, quantize_later ? ActivationForms{.floats = true} : forms));
  FillHidden(activation, shares, x, layer.intermediate_columns.begin, hidden);
  BATON_RETURN_IF_ERROR(link_.Meet());
  if (!quantize_later) return hidden.view;
  return hidden_.Prepare({hidden.floats, x.num_rows, columns}, /*quantized=*/true);
}

// A task owns 32 columns, one group of the result.
void Mlp::FillHidden(Activation activation, std::span<const Share> shares, const Activations& x,
                     int first_column, const Hidden& to) {
  const int columns = shares[0].mlp->gate.matrix.rows();
  SetProducts(shares, &MlpWeights::gate);
  const Activations gate_x = gate_input_.Apply(x, products_);
  const bool same = std::all_of(shares.begin(), shares.end(), [](const Share& share) {
    return SameOrder(share.mlp->gate.matrix, share.mlp->up.matrix);
  });
  SetProducts(shares, &MlpWeights::up);
  const Activations up_x = same ? gate_x : up_input_.Apply(x, products_);
  TaskList tasks;
  for (const Share& share : shares) tasks.Add(share.mlp->gate.matrix.num_tiles(), share.rows);
  pool_.ParallelFor(tasks.Cut(/*tiles_per_task=*/kGroup / kTileRows), [&](int index, int) {
    const TaskList::Task task = tasks.At(index);
    GateUpBlock block;
    ComputeGateUp(*shares[task.product].mlp, task, gate_x, up_x, block);
    const int own_column = task.first_tile * kTileRows;
    const int num_columns = std::min(kGroup, columns - own_column);
    const std::size_t column = first_column + own_column;
    for (int row = 0; row < task.rows.count; ++row) {
      alignas(64) float h[kGroup];
      for (int t = 0; t < task.end_tile - task.first_tile; ++t) {
        ActivateGate(activation, block.gate[t] + row * kTileRows, block.up[t] + row * kTileRows,
                     kTileRows, h + t * kTileRows);
      }
      const std::size_t at = task.rows.first + row;
      if (to.groups != nullptr) {
        QuantizeRow(h, kGroup, to.groups + at * to.view.groups + column / kGroup);
      }
      if (to.floats != nullptr) {
        std::copy_n(h, num_columns, to.floats + at * to.view.stride + column);
      }
    }
  });
}

void Mlp::SetProducts(std::span<const Share> shares, Linear MlpWeights::*map) {
  products_.clear();
  for (const Share& share : shares) products_.push_back({&(share.mlp->*map).matrix, share.rows});
}

template <class Sink>
void Mlp::Down(std::span<const Share> shares, const Activations& h, const Sink& sink) {
  SetProducts(shares, &MlpWeights::down);
  MatMul(pool_, down_input_.Apply(h, products_), products_, sink);
}

}  // namespace baton::engine::cpu
