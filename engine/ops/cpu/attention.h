#pragma once
#include <memory>
#include <vector>

#include "engine/kv/kv_pool.h"
#include "engine/model/model_plan.h"
#include "engine/ops/cpu/aligned_buffer.h"
#include "engine/ops/cpu/kernels.h"
#include "engine/ops/ops.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// Causal attention over paged KV: cuts a ragged batch into tasks of (sequence, KV heads, run of
// query rows) and, where few rows face a long context, also by splits of 512 keys that are joined
// afterwards in order. Keys are walked in tiles at absolute positions in either case, so a row's
// result does not depend on the cut. Of a layer with a window only the tiles that some row sees are
// walked. Keeps its scratch memory between calls. Thread-compatible.
// Source of the split: Flash-Decoding (Dao et al. 2023), made order-preserving.
class Attention {
 public:
  explicit Attention(ThreadPool& pool);
  ~Attention();

  // As Ops::PagedAttention.
  void Run(const LayerPlan& plan, int layer, const RaggedBatch& batch, const float* q,
           const KvPool& kv, float* out);

 private:
  struct Task;
  struct Scratch;
  struct Call;
  int HeadsPerTask(const Call& call) const;
  void PlanTasks(const Call& call);
  void RunTask(const Call& call, const Task& task, int thread);
  static void ScaleQueries(const Call& call, const Task& task, Scratch& scratch);
  static float* WalkSplit(const Call& call, const Task& task, int split, Scratch& scratch);
  static void AttendHead(const Call& call, int num_queries, KeyRange loaded, bool all_see_all,
                         const float* queries, const Scratch& scratch, const AttentionState& state);
  static void TouchTile(const Call& call, const Task& task, int tile_start, KeyRange loaded);
  static void GatherTile(const Call& call, const Task& task, int kv_head, int tile_start,
                         KeyRange loaded, Scratch& scratch);
  float* PartialOf(const Call& call, const Task& task, int split) const;
  static float* ClearStates(const Call& call, const Task& task, AlignedBuffer<float>& buffer);
  static void JoinStates(const Call& call, const Task& task, float* part, float* total);
  static void WriteOut(const Call& call, const Task& task, float* states);

  ThreadPool& pool_;
  std::vector<Task> tasks_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // [num_threads]
  AlignedBuffer<float> partials_;                  // of split tasks
};

}  // namespace baton::engine::cpu
