#include "engine/ops/cuda/cuda_weights.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "engine/parallel/shard.h"

namespace baton::engine::cuda {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Tensor;

// One linear map of the checkpoint, and what a rank holds of it.
struct MapSlice {
  std::string name;  // without ".weight" and ".bias"
  int rows = 0;      // of the whole map
  int columns = 0;
  IndexRange own_rows;
  IndexRange own_columns;
};

// Brings the weights of one model to the device.
class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const ModelPlan& plan, const Shard& shard,
               WeightUploader& uploader)
      : checkpoint_(checkpoint), plan_(plan), shard_(shard), uploader_(uploader) {}

  absl::Status Norm(const std::string& name, int count, gpu::DeviceBuffer& to) {
    std::vector<float> values(count);
    BATON_RETURN_IF_ERROR(Vector(absl::StrCat(name, ".weight"), {0, count}, count, values.data()));
    for (float& value : values) value += plan_.norm_offset;
    return Floats(values, to);
  }

  // The maps' outputs side by side.
  absl::Status Maps(std::span<const MapSlice> maps, DeviceLinear& to) {
    std::vector<MatrixSlice> slices;
    BATON_RETURN_IF_ERROR(Find(maps, slices));
    bool apart = false;
    if (!DeviceMatrix::SameQuantizedForm(slices)) {
      int row = 0;
      bool aligned = true;
      for (const MatrixSlice& slice : slices) {
        apart |= DeviceMatrix::FormatOf(*slice.tensor) != WeightFormat::kDense;
        aligned &= row % 8 == 0;  // products write at multiples of 16 bytes
        row += slice.rows.size();
      }
      apart &= aligned;
    }
    if (apart) {
      for (const MatrixSlice& slice : slices) {
        BATON_RETURN_IF_ERROR(Upload({&slice, 1}, /*dense=*/false, to.parts.emplace_back()));
      }
    } else {
      BATON_RETURN_IF_ERROR(Upload(slices, /*dense=*/false, to.parts.emplace_back()));
    }
    return Biases(maps, to.bias);
  }

  // The maps of all experts stacked in one matrix, dense where they differ in form.
  absl::Status Experts(std::span<const MapSlice> maps, int num_experts, ExpertLinear& to) {
    std::vector<MatrixSlice> slices;
    BATON_RETURN_IF_ERROR(Find(maps, slices));
    BATON_RETURN_IF_ERROR(Upload(slices, /*dense=*/false, to.linear.parts.emplace_back()));
    to.num_experts = num_experts;
    to.rows_per_expert = to.linear.rows() / num_experts;
    return Biases(maps, to.linear.bias);
  }

  absl::StatusOr<std::shared_ptr<const DeviceMatrix>> Matrix(const MapSlice& map) {
    std::vector<MatrixSlice> slices;
    BATON_RETURN_IF_ERROR(Find({&map, 1}, slices));
    auto matrix = std::make_shared<DeviceMatrix>();
    BATON_RETURN_IF_ERROR(Upload(slices, /*dense=*/false, *matrix));
    return matrix;
  }

 private:
  absl::Status Upload(std::span<const MatrixSlice> slices, bool dense, DeviceMatrix& to) {
    auto matrix = DeviceMatrix::Upload(slices, dense, uploader_);
    if (!matrix.ok()) return Annotate(matrix.status(), slices.front().tensor->name);
    to = *std::move(matrix);
    return absl::OkStatus();
  }

  absl::StatusOr<const Tensor*> Find(const std::string& name, std::int64_t rows,
                                     std::int64_t columns) {
    const Tensor* tensor = checkpoint_.Find(name);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "weight missing from the checkpoint: %s, expected %d x %d; the model's files are "
          "incomplete",
          name, rows, columns));
    }
    if (tensor->rows() != rows || tensor->columns() != columns) {
      return absl::InvalidArgumentError(absl::StrFormat("shape of %s: %d x %d, expected %d x %d",
                                                        name, tensor->rows(), tensor->columns(),
                                                        rows, columns));
    }
    return tensor;
  }

  absl::Status Find(std::span<const MapSlice> maps, std::vector<MatrixSlice>& slices) {
    for (const MapSlice& map : maps) {
      BATON_ASSIGN_OR_RETURN(const Tensor* tensor,
                             Find(absl::StrCat(map.name, ".weight"), map.rows, map.columns));
      slices.push_back({tensor, map.own_rows, map.own_columns});
    }
    return absl::OkStatus();
  }

  // Elements `range` of a vector of `count`.
  absl::Status Vector(const std::string& name, IndexRange range, int count, float* to) {
    BATON_ASSIGN_OR_RETURN(const Tensor* tensor, Find(name, 1, count));
    std::vector<float> values(count);
    checkpoint::DequantizeRow(tensor->dtype, tensor->data.data(), count, values.data());
    std::copy(values.begin() + range.begin, values.begin() + range.end, to);
    return absl::OkStatus();
  }

  absl::Status Biases(std::span<const MapSlice> maps, gpu::DeviceBuffer& to) {
    std::size_t total = 0;
    for (const MapSlice& map : maps) total += map.own_rows.size();
    std::vector<float> values(total);
    bool any = false;
    float* next = values.data();
    for (const MapSlice& map : maps) {
      const std::string name = absl::StrCat(map.name, ".bias");
      // Ranks that hold some of a map's inputs add up their outputs: one of them brings the bias.
      const bool others = map.own_columns.size() != map.columns && shard_.rank != 0;
      if (!others && checkpoint_.Find(name) != nullptr) {
        BATON_RETURN_IF_ERROR(Vector(name, map.own_rows, map.rows, next));
        any = true;
      }
      next += map.own_rows.size();
    }
    return any ? Floats(values, to) : absl::OkStatus();
  }

  absl::Status Floats(const std::vector<float>& values, gpu::DeviceBuffer& to) {
    BATON_ASSIGN_OR_RETURN(to, gpu::DeviceBuffer::Create(values.size() * sizeof(float)));
    BATON_RETURN_IF_ERROR(uploader_.Copy(to.data(), std::as_bytes(std::span(values))));
    return uploader_.Finish();
  }

  const Checkpoint& checkpoint_;
  const ModelPlan& plan_;
  const Shard& shard_;
  WeightUploader& uploader_;
};

IndexRange All(int count) { return {0, count}; }
IndexRange Times(IndexRange range, int factor) {
  return {range.begin * factor, range.end * factor};
}

absl::Status LoadNorms(WeightLoader& load, const std::string& prefix, const LayerPlan& shape,
                       int hidden, CudaLayer& layer) {
  BATON_RETURN_IF_ERROR(load.Norm(prefix + "attention_norm", hidden, layer.attention_norm));
  BATON_RETURN_IF_ERROR(load.Norm(prefix + "mlp_norm", hidden, layer.mlp_norm));
  if (shape.post_norms) {
    BATON_RETURN_IF_ERROR(
        load.Norm(prefix + "attention_post_norm", hidden, layer.attention_post_norm));
    BATON_RETURN_IF_ERROR(load.Norm(prefix + "mlp_post_norm", hidden, layer.mlp_post_norm));
  }
  if (shape.qk_norm) {
    BATON_RETURN_IF_ERROR(load.Norm(prefix + "q_norm", shape.head_dim, layer.q_norm));
    BATON_RETURN_IF_ERROR(load.Norm(prefix + "k_norm", shape.head_dim, layer.k_norm));
  }
  return absl::OkStatus();
}

absl::Status LoadAttention(WeightLoader& load, const std::string& prefix, const LayerPlan& shape,
                           const LayerShard& own, int hidden, CudaLayer& layer) {
  const int q_rows = shape.num_heads * shape.head_dim;
  const int kv_rows = shape.num_kv_heads * shape.head_dim;
  const IndexRange heads = Times(own.heads, shape.head_dim);
  const IndexRange kv_heads = Times(own.kv_heads, shape.head_dim);
  const MapSlice qkv[] = {{prefix + "q", q_rows, hidden, heads, All(hidden)},
                          {prefix + "k", kv_rows, hidden, kv_heads, All(hidden)},
                          {prefix + "v", kv_rows, hidden, kv_heads, All(hidden)}};
  BATON_RETURN_IF_ERROR(load.Maps(qkv, layer.qkv));
  const MapSlice o = {prefix + "o", hidden, q_rows, All(hidden), heads};
  return load.Maps({&o, 1}, layer.o);
}

absl::Status LoadMlps(WeightLoader& load, const std::string& prefix, const LayerPlan& shape,
                      const LayerShard& own, int hidden, CudaLayer& layer) {
  const int size = shape.intermediate_size;
  std::vector<MapSlice> gate_up, down;
  const auto add = [&](const std::string& place) {
    gate_up.push_back({place + "gate", size, hidden, own.intermediate, All(hidden)});
    gate_up.push_back({place + "up", size, hidden, own.intermediate, All(hidden)});
    down.push_back({place + "down", hidden, size, All(hidden), own.intermediate});
  };
  if (shape.num_experts == 0) {
    add(prefix);
    BATON_RETURN_IF_ERROR(load.Maps(gate_up, layer.gate_up));
    return load.Maps(down, layer.down);
  }
  const int experts = shape.num_experts;
  for (int expert = 0; expert < experts; ++expert) {
    add(absl::StrCat(prefix, "experts.", expert, "."));
  }
  const MapSlice router = {prefix + "router", experts, hidden, All(experts), All(hidden)};
  BATON_RETURN_IF_ERROR(load.Maps({&router, 1}, layer.router));
  BATON_RETURN_IF_ERROR(load.Experts(gate_up, experts, layer.expert_gate_up));
  return load.Experts(down, experts, layer.expert_down);
}

}  // namespace

int DeviceLinear::rows() const {
  int rows = 0;
  for (const DeviceMatrix& part : parts) rows += part.rows();
  return rows;
}

std::size_t DeviceLinear::bytes() const {
  std::size_t bytes = bias.bytes();
  for (const DeviceMatrix& part : parts) bytes += part.bytes();
  return bytes;
}

absl::StatusOr<std::unique_ptr<CudaLayer>> LoadCudaLayer(const Checkpoint& checkpoint,
                                                         const ModelPlan& plan, const Shard& shard,
                                                         int layer, WeightUploader& uploader) {
  const LayerPlan& shape = plan.layers[layer];
  const LayerShard& own = shard.layers[layer];
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  WeightLoader load(checkpoint, plan, shard, uploader);
  auto loaded = std::make_unique<CudaLayer>();
  BATON_RETURN_IF_ERROR(LoadNorms(load, prefix, shape, plan.hidden_size, *loaded));
  BATON_RETURN_IF_ERROR(LoadAttention(load, prefix, shape, own, plan.hidden_size, *loaded));
  BATON_RETURN_IF_ERROR(LoadMlps(load, prefix, shape, own, plan.hidden_size, *loaded));
  return loaded;
}

absl::StatusOr<std::unique_ptr<CudaEdges>> LoadCudaEdges(const Checkpoint& checkpoint,
                                                         const ModelPlan& plan, const Shard& shard,
                                                         WeightUploader& uploader) {
  WeightLoader load(checkpoint, plan, shard, uploader);
  auto edges = std::make_unique<CudaEdges>();
  edges->vocab = shard.vocab;
  const auto rows_of = [&](const char* name) -> MapSlice {
    return {name, plan.vocab_size, plan.hidden_size, shard.vocab, All(plan.hidden_size)};
  };
  BATON_ASSIGN_OR_RETURN(edges->embedding, load.Matrix(rows_of("token_embedding")));
  BATON_RETURN_IF_ERROR(load.Norm("output_norm", plan.hidden_size, edges->norm));
  edges->head = edges->embedding;
  if (!plan.tied_embeddings) {
    BATON_ASSIGN_OR_RETURN(edges->head, load.Matrix(rows_of("output")));
  }
  return edges;
}

}  // namespace baton::engine::cuda
