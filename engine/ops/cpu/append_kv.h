#pragma once
#include "engine/kv/kv_pool.h"
#include "engine/model/model_plan.h"
#include "engine/ops/cpu/cpu_weights.h"
#include "engine/ops/ops.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// Finishes the queries, keys and values of a batch: normalizes each head of q and k where the layer
// does, rotates them, and writes k and v to their slots in layer `layer` of `kv`.
//   q: [num_rows, num_heads * head_dim], changed in place
//   key_values: [num_rows, 2 * num_kv_heads * head_dim], a row's keys before its values; changed
void AppendKv(ThreadPool& pool, const ModelPlan& plan, int layer, const CpuLayer& weights,
              const RaggedBatch& batch, float* q, float* key_values, KvPool& kv);

}  // namespace baton::engine::cpu
