#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint.h"
#include "common/sampling_params.h"
#include "engine/kv/kv_pool.h"
#include "engine/model/model_plan.h"

namespace baton::engine {

// Activations in the backend's own memory, [rows, columns] row-major. On the CPU backends the
// elements are float. A plain view; the owner is a MatrixBuffer.
struct Matrix {
  void* data = nullptr;
  int rows = 0;
  int columns = 0;
  float* f32() const { return static_cast<float*>(data); }
  // The first `num_rows` rows.
  Matrix Rows(int num_rows) const { return {data, num_rows, columns}; }
};

// Owns the memory of one Matrix.
class MatrixBuffer {
 public:
  virtual ~MatrixBuffer() = default;
  virtual Matrix matrix() const = 0;
};

// The rows of one sequence in a ragged batch: rows [first_row, first_row + num_rows) are its tokens
// at positions [start_position, start_position + num_rows). `block_table` covers all positions up
// to the last of them.
struct BatchSequence {
  int first_row = 0;
  int num_rows = 0;
  int start_position = 0;
  std::span<const BlockId> block_table;
};

// The rows computed together in one step: prefill chunks and decode rows mixed, in any order.
struct RaggedBatch {
  std::span<const std::int32_t> tokens;     // [num_rows]
  std::span<const std::int32_t> positions;  // [num_rows]
  std::span<const BatchSequence> sequences;
  std::span<const std::int32_t> text_lengths;  // [num_rows], as RopeAngleBuffer::Compute takes them
  std::span<const RopeAngles> angles;          // [ropes of the plan]; empty where Ops makes its own
  int num_rows() const { return static_cast<int>(tokens.size()); }
};

// A row of the batch after which a token is sampled.
struct SampledRow {
  int row = 0;  // of the batch
  const SamplingParams* params = nullptr;
  std::span<const std::int32_t> prompt;  // the sequence's tokens so far
  std::span<const std::int32_t> output;
};

// Called on the stepping thread once layer `layer` has written K and V of every row of the step and
// what it wrote is final in the pool's memory. In the order of layers.
using LayerHook = std::function<void(int layer)>;

// What a step computes.
struct StepInput {
  RaggedBatch batch;
  std::span<const SampledRow> samples;  // in the order of rows
  bool hidden_needed = false;           // Logits is going to be called
  bool layers_watched = false;          // a layer hook is waiting
};

// Weights of one layer, or of the embedding / final norm / head, in the backend's own form. Opaque
// outside the backend that made them. May point into the checkpoint, which must outlive them.
class LayerWeights {
 public:
  virtual ~LayerWeights() = default;
};
class EdgeWeights {
 public:
  virtual ~EdgeWeights() = default;
};

// The arithmetic of a model on one device, in steps coarse enough for a backend to fuse inside.
// Batch-invariant: what a row becomes never depends, in any bit, on the other rows of the batch, on
// how a prompt was cut into chunks, or on the number of threads: sums run in one order, and
// attention walks key blocks at absolute positions.
// Thread-compatible: one step at a time per object; a backend brings its own threads.
//
// A step is the sequence of calls
//   BeginStep, Embed, for each layer {QkvRopeAppend, LayerWritten, PagedAttention,
//   AttentionOutput, Mlp}, Logits..., Sample, EndStep
// on one thread with one batch. A backend with a queue of its own may only take note of the work
// until EndStep, which waits for it; Logits waits too. When a call fails, AbandonStep ends the
// step.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual absl::StatusOr<std::unique_ptr<MatrixBuffer>> NewMatrix(int rows, int columns) = 0;
  // A pool in the memory that this backend computes in.
  //   kInvalidArgument  a number format that it does not compute with; errors of KvPool::Create
  virtual absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout,
                                                            int num_blocks) = 0;
  // Bytes that a pool may take beside all that the backend has allocated by now; none where the
  // pool lies in the host's memory, whose owner knows best.
  virtual absl::StatusOr<std::optional<std::uint64_t>> KvMemoryLeft() const = 0;
  // Whether RaggedBatch::angles is to be filled in.
  virtual bool takes_rope_angles() const = 0;
  virtual absl::StatusOr<std::unique_ptr<LayerWeights>> LoadLayer(
      const checkpoint::Checkpoint& checkpoint, const ModelPlan& plan, int layer) = 0;
  virtual absl::StatusOr<std::unique_ptr<EdgeWeights>> LoadEdges(
      const checkpoint::Checkpoint& checkpoint, const ModelPlan& plan) = 0;

  // Starts a step over `kv`; what `input` refers to stays as it is until the step's end. False: the
  // backend has recorded such a step before and now does all of it by itself: the calls up to
  // Sample are left out.
  //   kInvalidArgument  a pool that this backend cannot compute with
  virtual absl::StatusOr<bool> BeginStep(const ModelPlan& plan, const StepInput& input,
                                         KvPool& kv) = 0;
  // QkvRopeAppend of `layer` was called. The hook (may be null) is called here or in a later call
  // of the step.
  virtual absl::Status LayerWritten(int layer, const LayerHook& on_layer) = 0;

  // x[t, :] = embedding_scale * embedding[tokens[t], :].   x: [num_rows, hidden]
  virtual absl::Status Embed(const ModelPlan& plan, const EdgeWeights& edges,
                             const RaggedBatch& batch, Matrix x) = 0;

  // n = RmsNorm(x); q, k, v = n * Wqkv (+ bias); where qk_norm: each head of q and k normalized; q
  // and k rotated by the batch's angles; k and v written to the batch's slots in layer `layer` of
  // `kv`; q written out.
  //   x: [num_rows, hidden], unchanged; q: [num_rows, num_heads * head_dim]
  virtual absl::Status QkvRopeAppend(const ModelPlan& plan, int layer, const LayerWeights& weights,
                                     const RaggedBatch& batch, Matrix x, KvPool& kv, Matrix q) = 0;

  // Causal attention of each row over its own sequence's positions [FirstVisible(position),
  // position], read from `kv`; query head h uses KV head h / (num_heads / num_kv_heads). What lies
  // in slots that a row does not see, NaN and infinity included, has no effect on it.
  //   q, out: [num_rows, num_heads * head_dim]; must not alias
  virtual absl::Status PagedAttention(const ModelPlan& plan, int layer, const RaggedBatch& batch,
                                      Matrix q, const KvPool& kv, Matrix out) = 0;

  // x += PostNorm(attention * Wo (+ bias)).   attention: [num_rows, num_heads * head_dim]
  virtual absl::Status AttentionOutput(const ModelPlan& plan, int layer,
                                       const LayerWeights& weights, Matrix attention, Matrix x) = 0;

  // n = RmsNorm(x); x += PostNorm(Wdown * (act(Wgate * n) * (Wup * n))), each with its bias where
  // it has one, or the mixture of experts that LayerPlan defines. Rows of one expert are computed
  // together; the experts of a row are summed in the order of their index.
  virtual absl::Status Mlp(const ModelPlan& plan, int layer, const LayerWeights& weights,
                           Matrix x) = 0;

  // logits[i, :] = head * RmsNorm(x[rows[i], :]), then soft-capped where the plan says so.
  //   x: [num_rows, hidden]; logits: host memory, [rows.size(), vocab]
  virtual absl::Status Logits(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                              std::span<const std::int32_t> rows, float* logits) = 0;

  // Chooses the token after each of `input.samples` from its row's logits, as Sampler does.
  virtual absl::Status Sample(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                              const StepInput& input) = 0;
  // Waits until the step is done, calling `on_layer` for the layers that it has not been called
  // for. `tokens`: [input.samples.size()], what Sample chose.
  //   kDeadlineExceeded  a device that does not answer
  virtual absl::Status EndStep(const StepInput& input, const LayerHook& on_layer,
                               std::span<SampledToken> tokens) = 0;
  // Ends a step that failed in any of the above: when it returns, nothing writes to the pool.
  virtual void AbandonStep() = 0;
};

enum class ComputeMode : std::uint8_t {
  kFast,  // activations quantized to 8 bits where weights are quantized, float sums
  kF32,   // float activations and products throughout
};

struct OpsOptions {
  ComputeMode compute = ComputeMode::kFast;
  int num_threads = 1;  // total, the caller's thread included
  // Of the backend's own threads: added niceness, SCHED_BATCH, and how long they look for work
  // before they sleep (zero where more threads than cores run). See ThreadPoolOptions.
  int nice = 0;
  bool batch_scheduling = false;
  absl::Duration spin = absl::Microseconds(50);
};

// The clear, slow, single-threaded judge of every other backend: always plain float.
std::unique_ptr<Ops> MakeReferenceOps();
// Vectorised and threaded; picks the instruction set at run time.
std::unique_ptr<Ops> MakeCpuOps(const OpsOptions& options);
// The instruction set that MakeCpuOps computes with on this machine: "AVX3_DL", "AVX2", ... Two
// machines give the same bits only if theirs is the same.
std::string_view CpuInstructionSet();

}  // namespace baton::engine
