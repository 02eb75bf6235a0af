#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/sliding_window.h"
#include "engine/ops/cuda/kernels/attention.h"
#include "tests/support/cuda_test.h"

// Sequences whose queries, keys and values are known in advance, so that any of their rows can be
// computed in any batch.
namespace baton::engine::cuda {

struct AttentionCase {
  AttentionShape shape;
  int block_size = 16;
};

// Row `position` of a sequence: its output, [num_heads * head_dim].
template <class T>
using Rows = std::map<std::pair<int, int>, std::vector<T>>;  // by sequence and position

// Rows [start, start + rows) of a sequence in a step.
struct Chunk {
  int sequence;
  int start;
  int rows;
};

// How a step lies in memory; nothing of this may change a bit.
struct StepLayout {
  unsigned seed = 1;  // of the blocks' order
  int filling_rows = 0;
  int filling_sequences = 0;
  int longest = 0;        // 0: the longest chunk's rows
  int max_positions = 0;  // 0: what the step needs
  int max_rows = 0;       // likewise
};

template <class T>
class AttentionWorld : public testing::CudaTest {
 protected:
  // Makes sequences of these lengths.
  void MakeSequences(const AttentionCase& c, const std::vector<int>& lengths, unsigned seed) {
    case_ = c;
    sequences_.clear();
    std::mt19937 random(seed);
    for (const int length : lengths) {
      const auto& s = c.shape;
      sequences_.push_back({Random(length * s.num_heads * s.head_dim, random),
                            Random(length * s.num_kv_heads * s.head_dim, random),
                            Random(length * s.num_kv_heads * s.head_dim, random)});
    }
  }
  void SetValue(int sequence, int position, float value) {
    const int size = case_.shape.num_kv_heads * case_.shape.head_dim;
    std::fill_n(sequences_[sequence].v.begin() + position * size, size, FromFloat(value));
  }

  // Computes the chunks as one step. Slots that no row sees are NaN, blocks that none sees are
  // holes or NaN, and so is what the buffers held before.
  Rows<T> Step(const std::vector<Chunk>& chunks, const StepLayout& layout = {}) {
    const DeviceStep step(*this, chunks, layout);
    testing::ExpectCuda(
        PlanAttention(step.batch, case_.shape, step.limits, step.plan.data(), stream()));
    testing::ExpectCuda(Attention(step));
    return Outputs(step, chunks);
  }

  // softmax(scale q k) v in double, and sum of weights * |v|, which bounds what rounding the
  // weights to T may change.
  struct Expected {
    std::vector<double> out, magnitude;
  };
  Expected Reference(int sequence, int position) const {
    const auto& s = case_.shape;
    const auto& data = sequences_[sequence];
    Expected expected{std::vector<double>(s.num_heads * s.head_dim),
                      std::vector<double>(s.num_heads * s.head_dim)};
    const int first = FirstVisible(s.window, position);
    std::vector<double> scores(position + 1);
    for (int head = 0; head < s.num_heads; ++head) {
      const int kv_head = head / (s.num_heads / s.num_kv_heads);
      const T* q = &data.q[(position * s.num_heads + head) * s.head_dim];
      const auto slot = [&](const std::vector<T>& kv, int p) {
        return &kv[(p * s.num_kv_heads + kv_head) * s.head_dim];
      };
      double highest = -std::numeric_limits<double>::infinity();
      for (int p = first; p <= position; ++p) {
        double dot = 0;
        for (int i = 0; i < s.head_dim; ++i) {
          dot += double{ToFloat(q[i])} * ToFloat(slot(data.k, p)[i]);
        }
        scores[p] = dot * s.scale;
        if (s.softcap > 0) scores[p] = s.softcap * std::tanh(scores[p] / s.softcap);
        highest = std::max(highest, scores[p]);
      }
      double total = 0;
      for (int p = first; p <= position; ++p) total += scores[p] = std::exp(scores[p] - highest);
      for (int p = first; p <= position; ++p) {
        for (int i = 0; i < s.head_dim; ++i) {
          const double term = scores[p] / total * ToFloat(slot(data.v, p)[i]);
          expected.out[head * s.head_dim + i] += term;
          expected.magnitude[head * s.head_dim + i] += std::abs(term);
        }
      }
    }
    return expected;
  }

  void ExpectEqualsReference(const Rows<T>& rows) const {
    // Half an ulp, relative: 8 significant bits of bfloat16, 11 of half.
    const double ulp = std::is_same_v<T, __half> ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
    for (const auto& [key, got] : rows) {
      const Expected want = Reference(key.first, key.second);
      for (std::size_t i = 0; i < got.size(); ++i) {
        // Weights and the output are rounded to T; sums and exponents are float.
        const double tolerance =
            ulp * (want.magnitude[i] + 2 * std::abs(want.out[i])) + 1e-5 * want.magnitude[i] + 1e-6;
        ASSERT_NEAR(ToFloat(got[i]), want.out[i], tolerance)
            << "sequence " << key.first << ", position " << key.second << ", head "
            << i / case_.shape.head_dim << ", element " << i % case_.shape.head_dim;
      }
    }
  }
  static void ExpectSameBits(const Rows<T>& a, const Rows<T>& b) {
    for (const auto& [key, row] : a) {
      const auto other = b.find(key);
      if (other == b.end()) continue;
      ASSERT_EQ(std::memcmp(row.data(), other->second.data(), row.size() * sizeof(T)), 0)
          << "sequence " << key.first << ", position " << key.second;
    }
  }

  static T FromFloat(float x) {
    if constexpr (std::is_same_v<T, __half>) {
      return __float2half_rn(x);
    } else {
      return __float2bfloat16_rn(x);
    }
  }
  static float ToFloat(T x) {
    if constexpr (std::is_same_v<T, __half>) {
      return __half2float(x);
    } else {
      return __bfloat162float(x);
    }
  }

  struct Sequence {
    std::vector<T> q, k, v;  // [length, heads, head_dim]
  };

  // A step in device memory.
  struct DeviceStep {
    DeviceStep(AttentionWorld& world, const std::vector<Chunk>& chunks, const StepLayout& layout);

    AttentionLimits limits{};
    int longest = 1;
    gpu::DeviceBuffer q, kv, out, sequences, tables, plan, workspace;
    DeviceBatch batch{};
  };
  cudaError_t Attention(const DeviceStep& step) const {
    const auto& s = case_.shape;
    const KvView<T> kv{step.kv.template as<T>(), s.num_kv_heads, s.head_dim, case_.block_size};
    return PagedAttention(step.batch, s, step.limits, step.plan.data(), step.longest,
                          step.q.template as<T>(), kv, step.workspace.data(),
                          step.out.template as<T>(), stream());
  }
  Rows<T> Outputs(const DeviceStep& step, const std::vector<Chunk>& chunks) {
    const int size = case_.shape.num_heads * case_.shape.head_dim;
    const auto all = ToHost<T>(step.out, static_cast<std::size_t>(step.batch.num_rows) * size);
    Rows<T> rows;
    auto row = all.begin();
    for (const Chunk& chunk : chunks) {
      for (int i = 0; i < chunk.rows; ++i, row += size) {
        rows[{chunk.sequence, chunk.start + i}] = std::vector<T>(row, row + size);
      }
    }
    EXPECT_TRUE(std::all_of(row, all.end(), [](T x) { return std::isnan(ToFloat(x)); }))
        << "a filling row was written";
    return rows;
  }
  gpu::DeviceBuffer Poisoned(std::size_t bytes) {
    return ToDevice(std::vector<unsigned char>(std::max<std::size_t>(bytes, 16), 0xff));
  }

  AttentionCase case_{};
  std::vector<Sequence> sequences_;

 private:
  static std::vector<T> Random(int size, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<T> values(size);
    for (T& value : values) value = FromFloat(normal(random));
    return values;
  }
};

template <class T>
AttentionWorld<T>::DeviceStep::DeviceStep(AttentionWorld& world, const std::vector<Chunk>& chunks,
                                          const StepLayout& layout) {
  const AttentionCase& c = world.case_;
  const auto& s = c.shape;
  const int row_size = s.num_heads * s.head_dim;
  int num_rows = 0, max_positions = 1, num_blocks = 2;
  for (const Chunk& chunk : chunks) {
    num_rows += chunk.rows;
    longest = std::max(longest, chunk.rows);
    max_positions = std::max(max_positions, chunk.start + chunk.rows);
    num_blocks += (chunk.start + chunk.rows) / c.block_size + 1;
  }
  const int max_blocks = max_positions / c.block_size + 2;
  std::vector<int> free(num_blocks);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), std::mt19937(layout.seed));

  const int num_sequences = static_cast<int>(chunks.size()) + layout.filling_sequences;
  std::vector<SequenceRows> host_sequences(num_sequences, SequenceRows{0, 0, 0});
  // Beyond a sequence's last position: a block of another, or none there is.
  std::vector<int> host_tables(static_cast<std::size_t>(num_sequences) * max_blocks, 1 << 28);
  const std::size_t half = static_cast<std::size_t>(s.num_kv_heads) * c.block_size * s.head_dim;
  std::vector<T> host_kv(num_blocks * half * 2, FromFloat(NAN)), host_q;
  int row = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    const Sequence& data = world.sequences_[chunk.sequence];
    host_sequences[i] = {row, chunk.rows, chunk.start};
    row += chunk.rows;
    host_q.insert(host_q.end(), data.q.begin() + chunk.start * row_size,
                  data.q.begin() + (chunk.start + chunk.rows) * row_size);
    int* table = &host_tables[i * max_blocks];
    const int first = FirstVisible(s.window, chunk.start);
    std::fill_n(table, first / c.block_size, -1);
    for (int p = first; p < chunk.start + chunk.rows; ++p) {
      if (p == first || p % c.block_size == 0) {
        table[p / c.block_size] = free.back();
        free.pop_back();
      }
      for (int head = 0; head < s.num_kv_heads; ++head) {
        const std::size_t to = table[p / c.block_size] * half * 2 +
                               (head * c.block_size + p % c.block_size) * s.head_dim;
        const int from = (p * s.num_kv_heads + head) * s.head_dim;
        std::copy_n(&data.k[from], s.head_dim, &host_kv[to]);
        std::copy_n(&data.v[from], s.head_dim, &host_kv[to + half]);
      }
    }
  }
  num_rows += layout.filling_rows;
  host_q.resize(static_cast<std::size_t>(num_rows) * row_size, FromFloat(NAN));

  limits = {std::max(num_rows, layout.max_rows), num_sequences,
            std::max(max_positions, layout.max_positions)};
  longest = std::max(longest, layout.longest);
  q = world.ToDevice(host_q);
  kv = world.ToDevice(host_kv);
  out = world.Poisoned(host_q.size() * sizeof(T));
  sequences = world.ToDevice(host_sequences);
  tables = world.ToDevice(host_tables);
  plan = world.Poisoned(AttentionPlanBytes(s, limits));
  workspace = world.Poisoned(AttentionWorkspaceBytes(s, limits));
  batch = {.tokens = nullptr,
           .positions = nullptr,
           .row_sequence = nullptr,
           .sequences = sequences.template as<SequenceRows>(),
           .block_tables = tables.template as<int>(),
           .max_blocks = max_blocks,
           .num_rows = num_rows,
           .num_sequences = num_sequences};
}

}  // namespace baton::engine::cuda
