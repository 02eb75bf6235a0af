#include "engine/ops/cpu/attention.h"

#include <algorithm>
#include <memory>

#include "engine/ops/cpu/kernels.h"

namespace baton::engine::cpu {
namespace {

// Query vectors (rows times heads of a group) of one task. Enough to pay for widening the keys, few
// enough for queries and outputs to stay in the second-level cache.
constexpr int kQueriesPerTask = 96;
// Up to this many query vectors, a task is cut by splits of keys as well.
constexpr int kFewQueries = 16;

}  // namespace

// Rows [first_row, first_row + num_rows) of one sequence for num_heads KV heads. Together they see
// the keys [first_key, end_key), which lie in num_splits splits from first_split on. All of these
// in turn when `split` < 0, else that one; then `partial` is the place in the shared buffer of the
// states of the first split, a state for each head; later splits follow.
struct Attention::Task {
  int sequence = 0;
  int kv_head = 0;
  int num_heads = 1;
  int first_row = 0;
  int num_rows = 0;
  int first_key = 0;
  int end_key = 0;
  int first_split = 0;
  int num_splits = 1;
  int split = -1;
  std::size_t partial = 0;
  std::int64_t cost = 0;
};

struct Attention::Scratch {
  AlignedBuffer<float> queries, keys, values, part, total;
  AlignedBuffer<KeyRange> visible;
};

struct Attention::Call {
  const LayerPlan& plan;
  int layer;
  const RaggedBatch& batch;
  const float* q;
  const KvPool& kv;
  float* out;
  int group() const { return plan.num_heads / plan.num_kv_heads; }
  int padded() const { return PaddedHeadDim(plan.head_dim); }
  // Floats of an AttentionState of `num_queries`, its sums first.
  std::size_t StateFloats(int num_queries) const {
    return static_cast<std::size_t>(num_queries + 15) / 16 * 32 +
           static_cast<std::size_t>(num_queries) * padded();
  }
  AttentionState State(float* at, int num_queries) const {
    const int rounded = (num_queries + 15) / 16 * 16;
    return {at + rounded, at, at + 2 * rounded};
  }
  // Finds the keys that the task's rows see.
  void SetKeys(Task& task) const {
    const int first = batch.sequences[task.sequence].start_position + task.first_row;
    task.first_key = plan.FirstVisible(first);
    task.end_key = first + task.num_rows;
    task.first_split = task.first_key / kKeySplit;
    task.num_splits = (task.end_key + kKeySplit - 1) / kKeySplit - task.first_split;
  }
  // The keys of the tile from `tile` on that row `row` of the task sees.
  KeyRange Visible(const Task& task, int row, int tile) const {
    const int position = batch.sequences[task.sequence].start_position + task.first_row + row;
    return {std::clamp(plan.FirstVisible(position) - tile, 0, kKeyTile),
            std::clamp(position + 1 - tile, 0, kKeyTile)};
  }
};

Attention::Attention(ThreadPool& pool) : pool_(pool) {
  for (int i = 0; i < pool.num_threads(); ++i) scratch_.push_back(std::make_unique<Scratch>());
}

Attention::~Attention() = default;

// Few rows read every key once and are bounded by memory, which is fastest where a task reads whole
// blocks, all heads; but not at the price of idle threads.
int Attention::HeadsPerTask(const Call& call) const {
  int num_units = 0;
  for (const BatchSequence& sequence : call.batch.sequences) {
    const int first = call.plan.FirstVisible(sequence.start_position);
    const int end = sequence.start_position + sequence.num_rows;
    num_units += (end + kKeySplit - 1) / kKeySplit - first / kKeySplit;
  }
  return num_units >= 2 * pool_.num_threads() ? call.plan.num_kv_heads : 1;
}

void Attention::PlanTasks(const Call& call) {
  tasks_.clear();
  std::size_t partials = 0;
  const int rows_per_task = std::max(1, kQueriesPerTask / call.group());
  const int heads_per_task = HeadsPerTask(call);
  for (int s = 0; s < static_cast<int>(call.batch.sequences.size()); ++s) {
    const BatchSequence& sequence = call.batch.sequences[s];
    for (int first = 0; first < sequence.num_rows; first += rows_per_task) {
      Task task{.sequence = s,
                .first_row = first,
                .num_rows = std::min(rows_per_task, sequence.num_rows - first)};
      call.SetKeys(task);
      const int keys = task.end_key - task.first_key;
      const int queries = task.num_rows * call.group();
      const bool few = queries <= kFewQueries;
      task.num_heads = few ? heads_per_task : 1;
      const bool cut = task.num_splits > 1 && few;
      task.cost = std::int64_t{queries + 6} * task.num_heads * (cut ? kKeySplit : keys);
      for (task.kv_head = 0; task.kv_head < call.plan.num_kv_heads;
           task.kv_head += task.num_heads) {
        task.partial = partials;
        for (int split = 0; split < (cut ? task.num_splits : 1); ++split) {
          task.split = cut ? task.first_split + split : -1;
          if (cut) partials += call.StateFloats(queries) * task.num_heads;
          tasks_.push_back(task);
        }
      }
    }
  }
  partials_.Reserve(partials);
  // The longest first, so that the last task to end is a short one.
  std::stable_sort(tasks_.begin(), tasks_.end(),
                   [](const Task& a, const Task& b) { return a.cost > b.cost; });
}

void Attention::Run(const LayerPlan& plan, int layer, const RaggedBatch& batch, const float* q,
                    const KvPool& kv, float* out) {
  const Call call{plan, layer, batch, q, kv, out};
  PlanTasks(call);
  pool_.ParallelFor(static_cast<int>(tasks_.size()),
                    [&](int index, int thread) { RunTask(call, tasks_[index], thread); });
  std::erase_if(tasks_, [](const Task& task) { return task.split != task.first_split; });
  if (tasks_.empty()) return;
  pool_.ParallelFor(static_cast<int>(tasks_.size()), [&](int index, int thread) {
    const Task& task = tasks_[index];
    float* total = ClearStates(call, task, scratch_[thread]->total);
    for (int i = 0; i < task.num_splits; ++i) {
      JoinStates(call, task, PartialOf(call, task, task.first_split + i), total);
    }
    WriteOut(call, task, total);
  });
}

float* Attention::PartialOf(const Call& call, const Task& task, int split) const {
  return partials_.data() + task.partial +
         call.StateFloats(task.num_rows * call.group()) * task.num_heads *
             (split - task.first_split);
}

float* Attention::ClearStates(const Call& call, const Task& task, AlignedBuffer<float>& buffer) {
  const std::size_t floats = call.StateFloats(task.num_rows * call.group()) * task.num_heads;
  float* states = buffer.Reserve(floats);
  std::fill(states, states + floats, 0.0f);
  return states;
}

void Attention::JoinStates(const Call& call, const Task& task, float* part, float* total) {
  const int queries = task.num_rows * call.group();
  const std::size_t floats = call.StateFloats(queries);
  for (int h = 0; h < task.num_heads; ++h) {
    JoinAttention(call.State(part + h * floats, queries), queries, call.plan.head_dim,
                  call.State(total + h * floats, queries));
  }
}

void Attention::RunTask(const Call& call, const Task& task, int thread) {
  Scratch& scratch = *scratch_[thread];
  ScaleQueries(call, task, scratch);
  scratch.visible.Reserve(task.num_rows * call.group());
  scratch.keys.Reserve(static_cast<std::size_t>(call.plan.head_dim) * kKeyTile);
  scratch.values.Reserve(static_cast<std::size_t>(call.padded()) * kKeyTile);
  if (task.split >= 0) {
    const float* part = WalkSplit(call, task, task.split, scratch);
    const std::size_t floats = call.StateFloats(task.num_rows * call.group()) * task.num_heads;
    std::copy(part, part + floats, PartialOf(call, task, task.split));
    return;
  }
  if (task.num_splits == 1) {
    WriteOut(call, task, WalkSplit(call, task, task.first_split, scratch));
    return;
  }
  float* total = ClearStates(call, task, scratch.total);
  for (int i = 0; i < task.num_splits; ++i) {
    JoinStates(call, task, WalkSplit(call, task, task.first_split + i, scratch), total);
  }
  WriteOut(call, task, total);
}

// Leaves the task's queries, scaled, in scratch.queries: [num_heads, num_rows * group, head_dim].
void Attention::ScaleQueries(const Call& call, const Task& task, Scratch& scratch) {
  const int head_floats = call.group() * call.plan.head_dim;
  const BatchSequence& sequence = call.batch.sequences[task.sequence];
  float* scaled = scratch.queries.Reserve(static_cast<std::size_t>(task.num_heads) * task.num_rows *
                                          head_floats);
  for (int head = task.kv_head; head < task.kv_head + task.num_heads; ++head) {
    for (int row = 0; row < task.num_rows; ++row) {
      const std::size_t at = sequence.first_row + task.first_row + row;
      const float* from = call.q + (at * call.plan.num_kv_heads + head) * head_floats;
      for (int i = 0; i < head_floats; ++i) *scaled++ = from[i] * call.plan.attention_scale;
    }
  }
}

// The attention of the task's rows over the keys of one split: a state for each head, in
// scratch.part.
float* Attention::WalkSplit(const Call& call, const Task& task, int split, Scratch& scratch) {
  const int group = call.group();
  const int queries = task.num_rows * group;
  const int head_dim = call.plan.head_dim;
  float* states = ClearStates(call, task, scratch.part);
  const int first = std::max(split * kKeySplit, task.first_key / kKeyTile * kKeyTile);
  const int end = std::min(task.end_key, (split + 1) * kKeySplit);
  for (int tile = first; tile < end; tile += kKeyTile) {
    const KeyRange loaded{std::max(0, task.first_key - tile), std::min(kKeyTile, end - tile)};
    if (queries <= kFewQueries) TouchTile(call, task, tile, loaded);
    bool all_see_all = true;
    for (int i = 0; i < queries; ++i) {
      const KeyRange visible = call.Visible(task, i / group, tile);
      scratch.visible.data()[i] = visible;
      all_see_all &= visible == loaded;
    }
    for (int h = 0; h < task.num_heads; ++h) {
      GatherTile(call, task, task.kv_head + h, tile, loaded, scratch);
      AttendHead(call, queries, loaded, all_see_all,
                 scratch.queries.data() + static_cast<std::size_t>(h) * queries * head_dim, scratch,
                 call.State(states + h * call.StateFloats(queries), queries));
    }
  }
  return states;
}

// Adds the tile in `scratch` to the states of one head's queries: together, or one by one where
// some value is not finite and must not reach the queries that do not see it.
void Attention::AttendHead(const Call& call, int num_queries, KeyRange loaded, bool all_see_all,
                           const float* queries, const Scratch& scratch,
                           const AttentionState& state) {
  const KeyValueTile tile{scratch.keys.data(), scratch.values.data()};
  const KeyRange* visible = scratch.visible.data();
  const int head_dim = call.plan.head_dim;
  const float softcap = call.plan.attention_softcap;
  if (all_see_all || ValuesAreFinite(loaded, head_dim, tile)) {
    AttendTile(queries, visible, num_queries, head_dim, softcap, tile, state);
    return;
  }
  for (int i = 0; i < num_queries; ++i) {
    AttendTile(
        queries + static_cast<std::size_t>(i) * head_dim, visible + i, 1, head_dim, softcap, tile,
        {state.max + i, state.sum + i, state.out + static_cast<std::size_t>(i) * call.padded()});
  }
}

void Attention::GatherTile(const Call& call, const Task& task, int kv_head, int tile_start,
                           KeyRange loaded, Scratch& scratch) {
  const KvLayout& layout = call.kv.layout();
  const std::span<const BlockId> table = call.batch.sequences[task.sequence].block_table;
  const KeyValueTile tile{scratch.keys.data(), scratch.values.data()};
  for (int key = loaded.begin; key < loaded.end;) {
    const int offset = (tile_start + key) % layout.block_size;
    const int run = std::min(loaded.end - key, layout.block_size - offset);
    const std::byte* block =
        call.kv.Block(call.layer, table[(tile_start + key) / layout.block_size]).data();
    const std::byte* keys =
        block + (static_cast<std::size_t>(kv_head) * layout.block_size + offset) * layout.head_dim *
                    layout.element_bytes();
    LoadKeyValues(keys, keys + layout.half_block_bytes(), layout.dtype == KvDType::kF16, key, run,
                  layout.head_dim, tile);
    key += run;
  }
  ClearKeys(loaded, layout.head_dim, tile);
}

// Reads one word of every cache line of a tile's keys and values, in the order of addresses: the
// hardware then runs ahead as it does for a plain copy, while the order of the kernels (some keys,
// the values beside them, the next head) gets a fourth of the memory's rate, prefetches or not.
void Attention::TouchTile(const Call& call, const Task& task, int tile_start, KeyRange loaded) {
  const KvLayout& layout = call.kv.layout();
  const std::span<const BlockId> table = call.batch.sequences[task.sequence].block_table;
  const std::size_t head_bytes = layout.element_bytes() * layout.block_size * layout.head_dim;
  for (int key = tile_start + loaded.begin; key < tile_start + loaded.end;
       key += layout.block_size - key % layout.block_size) {
    const std::byte* block = call.kv.Block(call.layer, table[key / layout.block_size]).data();
    for (const std::size_t half : {std::size_t{0}, layout.half_block_bytes()}) {
      const std::byte* heads = block + half + head_bytes * task.kv_head;
      for (std::size_t at = 0; at < head_bytes * task.num_heads; at += 64) {
        static_cast<void>(*static_cast<const volatile std::byte*>(heads + at));
      }
    }
  }
}

void Attention::WriteOut(const Call& call, const Task& task, float* states) {
  const int group = call.group();
  const int head_dim = call.plan.head_dim;
  const int queries = task.num_rows * group;
  const BatchSequence& sequence = call.batch.sequences[task.sequence];
  for (int h = 0; h < task.num_heads; ++h) {
    const AttentionState state = call.State(states + h * call.StateFloats(queries), queries);
    for (int query = 0; query < queries; ++query) {
      const std::size_t row = sequence.first_row + task.first_row + query / group;
      const std::size_t head = static_cast<std::size_t>(task.kv_head + h) * group + query % group;
      float* to = call.out + (row * call.plan.num_heads + head) * head_dim;
      const float inverse = 1.0f / state.sum[query];
      const float* from = state.out + static_cast<std::size_t>(query) * call.padded();
      for (int d = 0; d < head_dim; ++d) to[d] = from[d] * inverse;
    }
  }
}

}  // namespace baton::engine::cpu
