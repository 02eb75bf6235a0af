#include "engine/ops/cuda/cuda_ops.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status.h"
#include "engine/ops/cuda/kernels/activation.h"
#include "engine/ops/cuda/kernels/add.h"
#include "engine/ops/cuda/kernels/dequantize.h"
#include "engine/ops/cuda/kernels/qkv_rope.h"
#include "engine/ops/cuda/kernels/rms_norm.h"
#include "engine/ops/cuda/kernels/softcap.h"
#include "engine/ops/cuda/memory_budget.h"
#include "gpu/status.h"

namespace baton::engine::cuda {
namespace {

// Tokens of prompts and outputs that the penalties of one step may look at on the device; what has
// no room is sampled on the host.
constexpr int kMaxListTokens = 1 << 20;

template <class T>
constexpr ElementType ElementTypeOf() {
  return std::is_same_v<T, __half> ? ElementType::kF16 : ElementType::kBF16;
}

class DeviceMatrixBuffer final : public MatrixBuffer {
 public:
  DeviceMatrixBuffer(gpu::DeviceBuffer memory, int rows, int columns)
      : memory_(std::move(memory)), rows_(rows), columns_(columns) {}
  Matrix matrix() const override { return {memory_.data(), rows_, columns_}; }

 private:
  gpu::DeviceBuffer memory_;
  int rows_, columns_;
};

GateActivation ActivationOf(Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh:
      return GateActivation::kGeluTanh;
    case Activation::kGelu:
      return GateActivation::kGelu;
    case Activation::kSilu:
      break;
  }
  return GateActivation::kSilu;
}

const float* FloatsOrNull(const gpu::DeviceBuffer& buffer) { return buffer.as<const float>(); }

template <class T>
KvView<T> ViewOf(const KvPool& kv, int layer) {
  const KvLayout& layout = kv.layout();
  return {.data = reinterpret_cast<T*>(kv.LayerData(layer)),
          .num_kv_heads = layout.num_kv_heads,
          .head_dim = layout.head_dim,
          .block_size = layout.block_size};
}

}  // namespace

absl::Status CheckPlan(const ModelPlan& plan) {
  const auto refuse = [](const char* what, int value, const char* rule) {
    return absl::FailedPreconditionError(
        absl::StrFormat("backend cuda does not compute this model: %s is %d, must be %s; choose "
                        "another backend",
                        what, value, rule));
  };
  if (plan.hidden_size % 8 != 0) return refuse("hidden size", plan.hidden_size, "a multiple of 8");
  for (const LayerPlan& layer : plan.layers) {
    if (layer.head_dim % 8 != 0 || layer.head_dim > 256) {
      return refuse("head_dim", layer.head_dim, "a multiple of 8 up to 256");
    }
    if (layer.intermediate_size % 8 != 0) {
      return refuse("intermediate size", layer.intermediate_size, "a multiple of 8");
    }
    if (layer.num_experts > kMaxExperts || layer.experts_per_token > kMaxExpertsPerRow) {
      return refuse("number of experts", layer.num_experts,
                    "at most 1024, of which a row takes at most 32");
    }
  }
  return absl::OkStatus();
}

template <class T>
absl::StatusOr<std::unique_ptr<CudaOps<T>>> CudaOps<T>::Create(const CudaOptions& options,
                                                               CudaRank rank) {
  const ModelPlan plan = LocalPlan(rank.whole, rank.shard);
  auto ops = absl::WrapUnique(new CudaOps(options, std::move(rank)));
  BATON_RETURN_IF_ERROR(ops->Enter());
  const int max_blocks = (plan.max_context + options.block_size - 1) / options.block_size;
  CudaStepOptions step;
  step.buffers.largest = {.num_rows = options.max_rows,
                          .num_sequences = options.max_sequences,
                          .num_samples = options.max_sequences,
                          .max_blocks = max_blocks};
  step.buffers.list_tokens = static_cast<int>(std::min<std::int64_t>(
      kMaxListTokens, std::int64_t{2} * options.max_sequences * plan.max_context));
  step.num_layers = static_cast<int>(plan.layers.size());
  // A graph that holds calls of NCCL would have to be gone before its communicator.
  step.graphs = options.graphs && ops->rank_.shard.world_size == 1;
  step.timeout = options.step_timeout;
  BATON_ASSIGN_OR_RETURN(ops->step_, CudaStep::Create(step));
  BATON_ASSIGN_OR_RETURN(ops->sampling_,
                         CudaSampling::Create(options.max_sequences, plan.vocab_size));
  BATON_ASSIGN_OR_RETURN(ops->matmul_, Matmul::Create({.type = ElementTypeOf<T>()}));
  BATON_ASSIGN_OR_RETURN(ops->activations_, Activations::Create(plan, options.max_rows, sizeof(T)));
  BATON_ASSIGN_OR_RETURN(ops->ropes_, RopeTables::Create(plan.ropes, options.max_rows));
  BATON_ASSIGN_OR_RETURN(ops->attention_,
                         AttentionPlans::Create(plan, {.max_rows = options.max_rows,
                                                       .max_sequences = options.max_sequences,
                                                       .max_positions = plan.max_context}));
  const std::size_t row_bytes = options.max_sequences * sizeof(int);
  BATON_ASSIGN_OR_RETURN(ops->host_rows_, gpu::PinnedBuffer::Create(row_bytes));
  BATON_ASSIGN_OR_RETURN(ops->rows_, gpu::DeviceBuffer::Create(row_bytes));
  if (ops->rank_.shard.world_size > 1) BATON_RETURN_IF_ERROR(ops->Connect());
  return ops;
}

template <class T>
absl::Status CudaOps<T>::Connect() {
  communicator_ = std::dynamic_pointer_cast<NcclCommunicator>(rank_.communicator);
  BATON_CHECK(communicator_ != nullptr, "a rank without a communicator of MakeCudaGroup");
  BATON_ASSIGN_OR_RETURN(
      link_,
      RankLink::Create(rank_.whole, rank_.shard.rank, rank_.shard.world_size, communicator_.get(),
                       {.max_rows = options_.max_rows, .max_samples = options_.max_sequences}));
  return communicator_->Connect(stream());
}

template <class T>
CudaOps<T>::~CudaOps() {
  Enter().IgnoreError();
  if (communicator_ != nullptr) communicator_->Disconnect();  // uses the stream until then
}

template <class T>
absl::Status CudaOps<T>::Enter() const {
  BATON_CUDA_RETURN_IF_ERROR(cudaSetDevice(options_.device));
  return absl::OkStatus();
}

// ---- memory

template <class T>
absl::StatusOr<std::unique_ptr<MatrixBuffer>> CudaOps<T>::NewMatrix(int rows, int columns) {
  BATON_RETURN_IF_ERROR(Enter());
  // Float, so that it serves for x and, with room to spare, for what is made of T.
  const std::size_t bytes = static_cast<std::size_t>(rows) * columns * sizeof(float);
  BATON_ASSIGN_OR_RETURN(gpu::DeviceBuffer memory, gpu::DeviceBuffer::Create(bytes));
  return std::make_unique<DeviceMatrixBuffer>(std::move(memory), rows, columns);
}

template <class T>
absl::StatusOr<std::unique_ptr<KvPool>> CudaOps<T>::NewKvPool(const KvLayout& layout,
                                                              int num_blocks) {
  if (layout.dtype != options_.type || layout.block_size != options_.block_size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "KV pool that backend cuda was not set up for: %s in blocks of %d tokens, expected %s in "
        "blocks of %d",
        std::string(KvDTypeName(layout.dtype)), layout.block_size,
        std::string(KvDTypeName(options_.type)), options_.block_size));
  }
  BATON_RETURN_IF_ERROR(Enter());
  const std::size_t layer_bytes = layout.block_bytes() * static_cast<std::size_t>(num_blocks);
  auto memory = gpu::DeviceBuffer::Create(layer_bytes * layout.num_layers);
  if (!memory.ok()) {
    return Annotate(memory.status(), absl::StrFormat("KV pool of %d blocks", num_blocks));
  }
  auto owner = std::make_shared<gpu::DeviceBuffer>(*std::move(memory));
  KvPool::Memory pieces{.device = options_.device, .owner = owner};
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    pieces.layers.push_back(owner->data() + layer_bytes * layer);
  }
  return KvPool::Adopt(layout, num_blocks, std::move(pieces));
}

template <class T>
absl::StatusOr<std::optional<std::uint64_t>> CudaOps<T>::KvMemoryLeft() const {
  BATON_RETURN_IF_ERROR(Enter());
  return DeviceBudgetLeft(options_.memory_utilization);
}

template <class T>
absl::StatusOr<std::unique_ptr<LayerWeights>> CudaOps<T>::LoadLayer(
    const checkpoint::Checkpoint& checkpoint, const ModelPlan& /*plan*/, int layer) {
  BATON_RETURN_IF_ERROR(Enter());
  BATON_ASSIGN_OR_RETURN(auto uploader, WeightUploader::Create(ElementTypeOf<T>()));
  return LoadCudaLayer(checkpoint, rank_.whole, rank_.shard, layer, *uploader);
}

template <class T>
absl::StatusOr<std::unique_ptr<EdgeWeights>> CudaOps<T>::LoadEdges(
    const checkpoint::Checkpoint& checkpoint, const ModelPlan& /*plan*/) {
  BATON_RETURN_IF_ERROR(Enter());
  BATON_ASSIGN_OR_RETURN(auto uploader, WeightUploader::Create(ElementTypeOf<T>()));
  return LoadCudaEdges(checkpoint, rank_.whole, rank_.shard, *uploader);
}

// ---- the course of a step

template <class T>
absl::StatusOr<bool> CudaOps<T>::BeginStep(const ModelPlan& /*plan*/, const StepInput& input,
                                           KvPool& kv) {
  if (kv.device() != options_.device || kv.layout().dtype != options_.type ||
      kv.layout().block_size != options_.block_size) {
    return absl::InvalidArgumentError("the KV pool was not made by this backend");
  }
  BATON_RETURN_IF_ERROR(Enter());
  return step_->Begin(input);
}

template <class T>
absl::Status CudaOps<T>::LayerWritten(int layer, const LayerHook& on_layer) {
  return step_->LayerWritten(layer, on_layer, /*report=*/link_.alone());
}

template <class T>
LayerHook CudaOps<T>::WhileConnected(const LayerHook& on_layer) const {
  if (!on_layer || link_.alone()) return on_layer;
  return [this, &on_layer](int layer) {
    if (link_.status().ok()) on_layer(layer);
  };
}

template <class T>
absl::Status CudaOps<T>::Sample(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                                const StepInput& input) {
  if (input.samples.empty()) return absl::OkStatus();
  const StepBuffers& buffers = step_->buffers();
  BATON_RETURN_IF_ERROR(DeviceLogits(plan, static_cast<const CudaEdges&>(edges), x,
                                     buffers.sampled_rows(), buffers.shape().num_samples));
  return link_.first() ? sampling_.Choose(*step_) : absl::OkStatus();
}

template <class T>
absl::Status CudaOps<T>::EndStep(const StepInput& input, const LayerHook& on_layer,
                                 std::span<SampledToken> tokens) {
  BATON_RETURN_IF_ERROR(step_->Launch());
  BATON_RETURN_IF_ERROR(step_->AwaitLayers(WhileConnected(on_layer)));
  BATON_RETURN_IF_ERROR(link_.status());
  if (!link_.first()) return absl::OkStatus();
  return sampling_.Collect(*step_, input.samples, tokens);
}

template <class T>
void CudaOps<T>::AbandonStep() {
  step_->Abandon();
}

// ---- arithmetic

template <class T>
absl::Status CudaOps<T>::Embed(const ModelPlan& plan, const EdgeWeights& edges,
                               const RaggedBatch& /*batch*/, Matrix x) {
  const auto& own = static_cast<const CudaEdges&>(edges);
  const DeviceBatch batch = step_->buffers().batch();
  BATON_RETURN_IF_ERROR(ropes_.Compute(step_->buffers(), stream()));
  BATON_RETURN_IF_ERROR(attention_.Fill(batch, stream()));
  BATON_CUDA_RETURN_IF_ERROR(EmbedRows(own.embedding->view(), batch.tokens, num_rows(),
                                       own.vocab.begin, plan.embedding_scale, x.f32(), stream()));
  return link_.alone() ? absl::OkStatus() : link_.SumRows(num_rows(), x.f32());
}

template <class T>
absl::Status CudaOps<T>::Normalize(Matrix x, const gpu::DeviceBuffer& weight, float eps) {
  BATON_CUDA_RETURN_IF_ERROR(RmsNorm(x.f32(), nullptr, num_rows(), weight.as<const float>(),
                                     x.columns, eps, activations_.normed.as<T>(), stream()));
  return absl::OkStatus();
}

template <class T>
absl::Status CudaOps<T>::QkvRopeAppend(const ModelPlan& plan, int layer,
                                       const LayerWeights& weights, const RaggedBatch& /*batch*/,
                                       Matrix x, KvPool& kv, Matrix q) {
  const auto& own = static_cast<const CudaLayer&>(weights);
  const LayerPlan& shape = plan.layers[layer];
  const Rope& rope = plan.ropes[shape.rope];
  BATON_RETURN_IF_ERROR(Normalize(x, own.attention_norm, shape.norm_eps));
  BATON_RETURN_IF_ERROR(matmul_->Multiply(
      own.qkv,
      {.x = activations_.normed.data(), .num_rows = num_rows(), .y = activations_.qkv.data()},
      stream()));
  const QkvShape qkv{.num_heads = shape.num_heads,
                     .num_kv_heads = shape.num_kv_heads,
                     .head_dim = shape.head_dim,
                     .rope_dim = rope.dim,
                     .interleaved = rope.interleaved,
                     .bias = own.qkv.bias_or_null(),
                     .q_norm = FloatsOrNull(own.q_norm),
                     .k_norm = FloatsOrNull(own.k_norm),
                     .norm_eps = shape.norm_eps};
  BATON_CUDA_RETURN_IF_ERROR(cuda::QkvRopeAppend(
      step_->buffers().batch(), qkv, activations_.qkv.as<const T>(), ropes_.cos(shape.rope),
      ropes_.sin(shape.rope), ViewOf<T>(kv, layer), static_cast<T*>(q.data), stream()));
  return absl::OkStatus();
}

template <class T>
absl::Status CudaOps<T>::PagedAttention(const ModelPlan& plan, int layer,
                                        const RaggedBatch& /*batch*/, Matrix q, const KvPool& kv,
                                        Matrix out) {
  BATON_CUDA_RETURN_IF_ERROR(cuda::PagedAttention(
      step_->buffers().batch(), ShapeOf(plan.layers[layer]), attention_.limits(),
      attention_.plan(layer), step_->longest(), static_cast<const T*>(q.data), ViewOf<T>(kv, layer),
      attention_.workspace(), static_cast<T*>(out.data), stream()));
  return absl::OkStatus();
}

template <class T>
absl::Status CudaOps<T>::AddProduct(const DeviceLinear& linear, const void* in,
                                    const gpu::DeviceBuffer& post_norm, float eps, Matrix x) {
  float* const part = PartOrNull(post_norm);
  BATON_RETURN_IF_ERROR(matmul_->Multiply(linear,
                                          {.x = in,
                                           .num_rows = num_rows(),
                                           .y = part != nullptr ? part : x.f32(),
                                           .float_output = true,
                                           .add = part == nullptr,
                                           .add_bias = true},
                                          stream()));
  return part != nullptr ? AddPart(post_norm, eps, x) : absl::OkStatus();
}

template <class T>
float* CudaOps<T>::PartOrNull(const gpu::DeviceBuffer& post_norm) const {
  if (!link_.alone()) return link_.Part(num_rows());
  return post_norm.bytes() > 0 ? activations_.added.as<float>() : nullptr;
}

template <class T>
absl::Status CudaOps<T>::AddPart(const gpu::DeviceBuffer& post_norm, float eps, Matrix x) {
  Addition addition{.norm_weight = FloatsOrNull(post_norm), .eps = eps};
  if (!link_.alone()) return link_.AddParts(addition, num_rows(), x.f32(), stream());
  addition.parts = activations_.added.as<const float>();
  BATON_CUDA_RETURN_IF_ERROR(AddToResidual(addition, num_rows(), x.columns, x.f32(), stream()));
  return absl::OkStatus();
}

template <class T>
absl::Status CudaOps<T>::AttentionOutput(const ModelPlan& plan, int layer,
                                         const LayerWeights& weights, Matrix attention, Matrix x) {
  const auto& own = static_cast<const CudaLayer&>(weights);
  return AddProduct(own.o, attention.data, own.attention_post_norm, plan.layers[layer].norm_eps, x);
}

template <class T>
absl::Status CudaOps<T>::Mlp(const ModelPlan& plan, int layer, const LayerWeights& weights,
                             Matrix x) {
  const auto& own = static_cast<const CudaLayer&>(weights);
  const LayerPlan& shape = plan.layers[layer];
  BATON_RETURN_IF_ERROR(Normalize(x, own.mlp_norm, shape.norm_eps));
  if (shape.num_experts > 0) return AddExperts(shape, own, x);
  BATON_RETURN_IF_ERROR(matmul_->Multiply(
      own.gate_up,
      {.x = activations_.normed.data(), .num_rows = num_rows(), .y = activations_.gate_up.data()},
      stream()));
  BATON_CUDA_RETURN_IF_ERROR(GatedActivation(ActivationOf(shape.activation),
                                             {.num_rows = num_rows(),
                                              .intermediate = shape.intermediate_size,
                                              .bias = own.gate_up.bias_or_null()},
                                             activations_.gate_up.as<const T>(),
                                             activations_.gated.as<T>(), stream()));
  return AddProduct(own.down, activations_.gated.data(), own.mlp_post_norm, shape.norm_eps, x);
}

template <class T>
absl::Status CudaOps<T>::AddExperts(const LayerPlan& shape, const CudaLayer& layer, Matrix x) {
  Activations& a = activations_;
  const ExpertsShape experts{.num_rows = num_rows(),
                             .num_experts = shape.num_experts,
                             .experts_per_row = shape.experts_per_token};
  const ExpertGroups groups = a.groups();
  BATON_RETURN_IF_ERROR(matmul_->Multiply(layer.router,
                                          {.x = a.normed.data(),
                                           .num_rows = num_rows(),
                                           .y = a.router_logits.data(),
                                           .float_output = true,
                                           .add_bias = true},
                                          stream()));
  BATON_CUDA_RETURN_IF_ERROR(ChooseExperts(experts, a.router_logits.as<const float>(),
                                           step_->buffers().batch().row_sequence,
                                           shape.normalize_expert_weights, a.choice(), stream()));
  BATON_CUDA_RETURN_IF_ERROR(GroupByExpert(experts, a.experts.as<const int>(), groups, stream()));
  BATON_RETURN_IF_ERROR(matmul_->MultiplyExperts(layer.expert_gate_up,
                                                 {.x = a.normed.data(),
                                                  .pair_rows = groups.place_rows,
                                                  .offsets = groups.offsets,
                                                  .num_pairs = experts.num_pairs(),
                                                  .y = a.gate_up.data()},
                                                 stream()));
  BATON_CUDA_RETURN_IF_ERROR(GatedActivation(ActivationOf(shape.activation),
                                             {.num_rows = experts.num_pairs(),
                                              .intermediate = shape.intermediate_size,
                                              .num_used = groups.offsets + shape.num_experts,
                                              .bias = layer.expert_gate_up.linear.bias_or_null(),
                                              .bias_rows = groups.place_experts},
                                             a.gate_up.as<const T>(), a.gated.as<T>(), stream()));
  BATON_RETURN_IF_ERROR(matmul_->MultiplyExperts(layer.expert_down,
                                                 {.x = a.gated.data(),
                                                  .offsets = groups.offsets,
                                                  .num_pairs = experts.num_pairs(),
                                                  .y = a.expert_out.data()},
                                                 stream()));
  float* const part = PartOrNull(layer.mlp_post_norm);
  BATON_CUDA_RETURN_IF_ERROR(
      CombineExperts(experts, a.choice(), groups.pair_places, a.expert_out.as<const T>(), x.columns,
                     {.add = part == nullptr, .bias = layer.expert_down.linear.bias_or_null()},
                     part != nullptr ? part : x.f32(), stream()));
  return part != nullptr ? AddPart(layer.mlp_post_norm, shape.norm_eps, x) : absl::OkStatus();
}

template <class T>
absl::Status CudaOps<T>::DeviceLogits(const ModelPlan& plan, const CudaEdges& edges, Matrix x,
                                      const int* rows, int num_rows) {
  BATON_CUDA_RETURN_IF_ERROR(RmsNorm(x.f32(), rows, num_rows, edges.norm.as<const float>(),
                                     x.columns, plan.norm_eps, activations_.normed.as<T>(),
                                     stream()));
  BATON_RETURN_IF_ERROR(
      matmul_->Multiply(*edges.head,
                        {.x = activations_.normed.data(),
                         .num_rows = num_rows,
                         .y = link_.alone() ? sampling_.logits() : link_.OwnLogits(num_rows),
                         .y_stride = link_.logits_stride(),
                         .float_output = true},
                        stream()));
  if (!link_.alone()) {
    BATON_RETURN_IF_ERROR(link_.GatherLogits(num_rows, sampling_.logits(), stream()));
    if (!link_.first()) return absl::OkStatus();
  }
  BATON_CUDA_RETURN_IF_ERROR(SoftCap(plan.logit_softcap,
                                     static_cast<std::size_t>(num_rows) * plan.vocab_size,
                                     sampling_.logits(), stream()));
  return absl::OkStatus();
}

template <class T>
absl::Status CudaOps<T>::Logits(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                                std::span<const std::int32_t> rows, float* logits) {
  while (!rows.empty()) {
    const int count = std::min(static_cast<int>(rows.size()), sampling_.rows_at_once());
    const std::size_t bytes = count * sizeof(int);
    std::memcpy(host_rows_.data(), rows.data(), bytes);
    BATON_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(rows_.data(), host_rows_.data(), bytes, cudaMemcpyHostToDevice, stream()));
    BATON_RETURN_IF_ERROR(
        DeviceLogits(plan, static_cast<const CudaEdges&>(edges), x, rows_.as<const int>(), count));
    rows = rows.subspan(count);
    if (!link_.first()) {
      BATON_RETURN_IF_ERROR(step_->Await());  // host_rows_ is written again
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const std::span<float> values, sampling_.Fetch(*step_, 0, count));
    BATON_RETURN_IF_ERROR(link_.status());
    logits = std::copy(values.begin(), values.end(), logits);
  }
  return absl::OkStatus();
}

template class CudaOps<__nv_bfloat16>;
template class CudaOps<__half>;

}  // namespace baton::engine::cuda
