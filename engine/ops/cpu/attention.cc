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

// Rows [first_row, first_row + num_rows) of one sequence for one KV head; all key splits in turn
// when `split` < 0, else that one, whose partial result starts at `partial` of the shared buffer.
struct Attention::Task {
  int sequence = 0;
  int kv_head = 0;
  int first_row = 0;
  int num_rows = 0;
  int split = -1;
  int num_splits = 1;
  std::size_t partial = 0;
  std::int64_t cost = 0;
};

struct Attention::Scratch {
  AlignedBuffer<float> queries, keys, values, part, total;
  AlignedBuffer<int> visible;
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
  // Position of row `row` of `task`'s sequence.
  int Position(const Task& task, int row) const {
    return batch.sequences[task.sequence].start_position + row;
  }
};

Attention::Attention(ThreadPool& pool) : pool_(pool) {
  for (int i = 0; i < pool.num_threads(); ++i) scratch_.push_back(std::make_unique<Scratch>());
}

Attention::~Attention() = default;

void Attention::PlanTasks(const Call& call) {
  tasks_.clear();
  std::size_t partials = 0;
  const int rows_per_task = std::max(1, kQueriesPerTask / call.group());
  for (int s = 0; s < static_cast<int>(call.batch.sequences.size()); ++s) {
    const BatchSequence& sequence = call.batch.sequences[s];
    for (int first = 0; first < sequence.num_rows; first += rows_per_task) {
      Task task{.sequence = s,
                .first_row = first,
                .num_rows = std::min(rows_per_task, sequence.num_rows - first)};
      const int keys = call.Position(task, task.first_row + task.num_rows);
      const int queries = task.num_rows * call.group();
      task.num_splits = (keys + kKeySplit - 1) / kKeySplit;
      const bool cut = task.num_splits > 1 && queries <= kFewQueries;
      task.cost = std::int64_t{queries + 6} * (cut ? kKeySplit : keys);
      for (task.kv_head = 0; task.kv_head < call.plan.num_kv_heads; ++task.kv_head) {
        for (int split = 0; split < (cut ? task.num_splits : 1); ++split) {
          task.split = cut ? split : -1;
          task.partial = partials;
          if (cut) partials += call.StateFloats(queries);
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
  // Splits of one row run stand side by side, first split first: equal costs keep their order.
  std::vector<const Task*> joins;
  for (const Task& task : tasks_) {
    if (task.split == 0) joins.push_back(&task);
  }
  if (joins.empty()) return;
  pool_.ParallelFor(static_cast<int>(joins.size()), [&](int index, int thread) {
    const Task& task = *joins[index];
    const int queries = task.num_rows * call.group();
    const std::size_t floats = call.StateFloats(queries);
    const AttentionState total = call.State(scratch_[thread]->total.Reserve(floats), queries);
    std::fill(total.sum, total.sum + floats, 0.0f);
    for (int split = 0; split < task.num_splits; ++split) {
      float* part = partials_.data() + task.partial + split * floats;
      JoinAttention(call.State(part, queries), queries, plan.head_dim, total);
    }
    WriteOut(call, task, total.sum, total.out);
  });
}

void Attention::RunTask(const Call& call, const Task& task, int thread) {
  Scratch& scratch = *scratch_[thread];
  const int group = call.group();
  const int head_dim = call.plan.head_dim;
  const int queries = task.num_rows * group;
  float* scaled = scratch.queries.Reserve(static_cast<std::size_t>(queries) * head_dim);
  scratch.visible.Reserve(queries);
  scratch.keys.Reserve(static_cast<std::size_t>(head_dim) * kKeyTile);
  scratch.values.Reserve(static_cast<std::size_t>(call.padded()) * kKeyTile);
  const BatchSequence& sequence = call.batch.sequences[task.sequence];
  const std::size_t row_floats = static_cast<std::size_t>(call.plan.num_heads) * head_dim;
  for (int row = 0; row < task.num_rows; ++row) {
    const float* from = call.q + (sequence.first_row + task.first_row + row) * row_floats +
                        static_cast<std::size_t>(task.kv_head) * group * head_dim;
    for (int i = 0; i < group * head_dim; ++i) *scaled++ = from[i] * call.plan.attention_scale;
  }

  const std::size_t floats = call.StateFloats(queries);
  scratch.part.Reserve(floats);
  if (task.split >= 0) {
    WalkSplit(call, task, task.split, scratch);
    std::copy(scratch.part.data(), scratch.part.data() + floats, partials_.data() + task.partial);
    return;
  }
  const AttentionState part = call.State(scratch.part.data(), queries);
  if (task.num_splits == 1) {
    WalkSplit(call, task, 0, scratch);
    WriteOut(call, task, part.sum, part.out);
    return;
  }
  const AttentionState total = call.State(scratch.total.Reserve(floats), queries);
  std::fill(total.sum, total.sum + floats, 0.0f);
  for (int split = 0; split < task.num_splits; ++split) {
    WalkSplit(call, task, split, scratch);
    JoinAttention(part, queries, head_dim, total);
  }
  WriteOut(call, task, total.sum, total.out);
}

// Leaves the attention of the task's rows over the keys of one split in scratch.part.
void Attention::WalkSplit(const Call& call, const Task& task, int split, Scratch& scratch) {
  const int group = call.group();
  const int queries = task.num_rows * group;
  const AttentionState state = call.State(scratch.part.data(), queries);
  std::fill(state.sum, state.sum + call.StateFloats(queries), 0.0f);
  const int limit = call.Position(task, task.first_row + task.num_rows);
  const int end = std::min(limit, (split + 1) * kKeySplit);
  for (int key = split * kKeySplit; key < end; key += kKeyTile) {
    GatherTile(call, task, key, std::min(kKeyTile, end - key), scratch);
    PrefetchTile(call, task, key + kKeyTile, end);
    for (int i = 0; i < queries; ++i) {
      scratch.visible.data()[i] = call.Position(task, task.first_row + i / group) - key + 1;
    }
    AttendTile(scratch.queries.data(), scratch.visible.data(), queries, call.plan.head_dim,
               {scratch.keys.data(), scratch.values.data()}, state);
  }
}

void Attention::GatherTile(const Call& call, const Task& task, int first_key, int num_keys,
                           Scratch& scratch) {
  const KvLayout& layout = call.kv.layout();
  const std::span<const BlockId> table = call.batch.sequences[task.sequence].block_table;
  const KeyValueTile tile{scratch.keys.data(), scratch.values.data()};
  for (int key = 0; key < num_keys;) {
    const int offset = (first_key + key) % layout.block_size;
    const int run = std::min(num_keys - key, layout.block_size - offset);
    const std::byte* block =
        call.kv.Block(call.layer, table[(first_key + key) / layout.block_size]).data();
    const std::byte* keys =
        block + (static_cast<std::size_t>(task.kv_head) * layout.block_size + offset) *
                    layout.head_dim * layout.element_bytes();
    LoadKeyValues(keys, keys + layout.half_block_bytes(), layout.dtype == KvDType::kF16, key, run,
                  layout.head_dim, tile);
    key += run;
  }
  ClearKeys(num_keys, layout.head_dim, tile);
}

// Asks for the cache lines of keys [first_key, first_key + 64) below `end` before they are needed:
// a block's keys are too short a stream for the hardware to run ahead.
void Attention::PrefetchTile(const Call& call, const Task& task, int first_key, int end) {
  const KvLayout& layout = call.kv.layout();
  const std::span<const BlockId> table = call.batch.sequences[task.sequence].block_table;
  const std::size_t head_bytes = layout.element_bytes() * layout.block_size * layout.head_dim;
  for (int key = first_key; key < std::min(end, first_key + kKeyTile);
       key += layout.block_size - key % layout.block_size) {
    const std::byte* keys = call.kv.Block(call.layer, table[key / layout.block_size]).data() +
                            head_bytes * task.kv_head;
    for (std::size_t at = 0; at < head_bytes; at += 64) {
      __builtin_prefetch(keys + at, 0, 2);
      __builtin_prefetch(keys + layout.half_block_bytes() + at, 0, 2);
    }
  }
}

void Attention::WriteOut(const Call& call, const Task& task, const float* sums, const float* outs) {
  const int group = call.group();
  const int head_dim = call.plan.head_dim;
  const BatchSequence& sequence = call.batch.sequences[task.sequence];
  for (int row = 0; row < task.num_rows; ++row) {
    float* to = call.out + (static_cast<std::size_t>(sequence.first_row + task.first_row + row) *
                                call.plan.num_heads +
                            static_cast<std::size_t>(task.kv_head) * group) *
                               head_dim;
    for (int h = 0; h < group; ++h) {
      const int query = row * group + h;
      const float inverse = 1.0f / sums[query];
      const float* from = outs + static_cast<std::size_t>(query) * call.padded();
      for (int d = 0; d < head_dim; ++d) *to++ = from[d] * inverse;
    }
  }
}

}  // namespace baton::engine::cpu
