// Paged attention against a plain softmax in double over random ragged batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/tensor.h"
#include "engine/ops/cpu/attention.h"
#include "engine/ops/cpu/kernels.h"
#include "tests/unit/engine/ops/cpu/targets.h"

namespace baton::engine::cpu {
namespace {

struct Shape {
  int num_kv_heads = 1;
  int group = 1;
  int head_dim = 64;
  int block_size = 16;
  KvDType dtype = KvDType::kF16;
  int max_context = 150;
  int window = 0;
  float softcap = 0.0f;
};

std::string Describe(const Shape& shape) {
  return absl::StrCat("head_dim ", shape.head_dim, ", KV heads ", shape.num_kv_heads, ", group ",
                      shape.group, ", window ", shape.window, ", softcap ", shape.softcap);
}

// Sequences with keys and values already in a pool whose other slots hold NaN, and queries for
// every position.
class AttentionCase {
 public:
  AttentionCase(const Shape& shape, unsigned seed) : shape_(shape), random_(seed) {
    plan_ = {.num_heads = shape.num_kv_heads * shape.group,
             .num_kv_heads = shape.num_kv_heads,
             .head_dim = shape.head_dim,
             .attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
             .attention_softcap = shape.softcap,
             .window = shape.window};
    layout_ = {.num_layers = 2,
               .num_kv_heads = shape.num_kv_heads,
               .head_dim = shape.head_dim,
               .block_size = shape.block_size,
               .dtype = shape.dtype};
    lengths_.resize(1 + random_() % 3);
    int num_blocks = 0;
    for (int& length : lengths_) {
      length = 1 + static_cast<int>(random_() % shape.max_context);
      num_blocks += layout_.BlocksFor(length);
    }
    pool_ = *KvPool::Create(layout_, num_blocks);
    std::vector<BlockId> blocks(num_blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_);
    for (const BlockId block : blocks) {
      std::memset(pool_->Block(kLayer, block).data(), 0xFF, layout_.block_bytes());
    }
    std::normal_distribution<float> value;
    for (const int length : lengths_) {
      const int count = layout_.BlocksFor(length);
      tables_.emplace_back(blocks.end() - count, blocks.end());
      blocks.resize(blocks.size() - count);
      keys_.emplace_back(static_cast<std::size_t>(length) * kv_columns());
      values_.emplace_back(keys_.back().size());
      queries_.emplace_back(static_cast<std::size_t>(length) * columns());
      for (float& x : keys_.back()) x = 2.0f * value(random_);
      for (float& x : values_.back()) x = value(random_);
      for (float& x : queries_.back()) x = value(random_);
      for (int p = 0; p < length; ++p) Store(static_cast<int>(tables_.size()) - 1, p);
    }
  }

  int num_sequences() const { return static_cast<int>(lengths_.size()); }
  int length(int sequence) const { return lengths_[sequence]; }
  int columns() const { return plan_.num_heads * plan_.head_dim; }

  struct Part {
    int sequence, start, count;
  };
  // Attention rows of `parts`, computed in one call.
  std::vector<std::vector<float>> Run(Attention& attention, const std::vector<Part>& parts) {
    std::vector<float> q;
    std::vector<BatchSequence> sequences;
    int rows = 0;
    for (const Part& part : parts) {
      const auto from = queries_[part.sequence].begin() + part.start * columns();
      q.insert(q.end(), from, from + part.count * columns());
      sequences.push_back({rows, part.count, part.start, tables_[part.sequence]});
      rows += part.count;
    }
    const std::vector<std::int32_t> unused(rows);
    std::vector<float> out(q.size());
    attention.Run(plan_, kLayer, {unused, unused, sequences}, q.data(), *pool_, out.data());
    std::vector<std::vector<float>> result;
    for (int row = 0; row < rows; ++row) {
      result.emplace_back(out.begin() + row * columns(), out.begin() + (row + 1) * columns());
    }
    return result;
  }

  std::vector<float> Expected(int sequence, int position) const {
    std::vector<float> out;
    const int dim = plan_.head_dim;
    for (int head = 0; head < plan_.num_heads; ++head) {
      const float* q = &queries_[sequence][(position * plan_.num_heads + head) * dim];
      const int kv_head = head / shape_.group;
      const int first = std::max(0, plan_.window == 0 ? 0 : position - plan_.window + 1);
      std::vector<double> weights(position + 1, -HUGE_VAL);
      for (int p = first; p <= position; ++p) {
        const float* k = &keys_[sequence][(p * plan_.num_kv_heads + kv_head) * dim];
        weights[p] = plan_.attention_scale * std::inner_product(q, q + dim, k, 0.0);
        const double cap = plan_.attention_softcap;
        if (cap > 0) weights[p] = cap * std::tanh(weights[p] / cap);
      }
      const double max = *std::max_element(weights.begin(), weights.end());
      double total = 0;
      for (double& weight : weights) total += weight = std::exp(weight - max);
      for (int d = 0; d < dim; ++d) {
        double sum = 0;
        for (int p = first; p <= position; ++p) {
          sum += weights[p] * values_[sequence][(p * plan_.num_kv_heads + kv_head) * dim + d];
        }
        out.push_back(static_cast<float>(sum / total));
      }
    }
    return out;
  }

  bool Sees(int row, int position) const {
    return position <= row && (plan_.window == 0 || position > row - plan_.window);
  }

  // Fills the slot of one token with bytes that are NaN.
  void Poison(int sequence, int position) {
    std::byte* block = BlockOf(sequence, position).data();
    const std::size_t bytes = plan_.head_dim * layout_.element_bytes();
    for (int h = 0; h < plan_.num_kv_heads; ++h) {
      for (const std::size_t half : {std::size_t{0}, layout_.half_block_bytes()}) {
        std::byte* slot =
            block + half + (h * layout_.block_size + position % layout_.block_size) * bytes;
        std::memset(slot, 0xFF, bytes);
      }
    }
  }

  // Makes hidden what no row of `part` sees: slots are NaN, blocks without any other slot are not
  // in the table.
  void HideFrom(const Part& part) {
    const int last = part.start + part.count - 1;
    std::vector<bool> needed(tables_[part.sequence].size());
    for (int p = 0; p < lengths_[part.sequence]; ++p) {
      if (p <= last && (p >= part.start || Sees(part.start, p))) {
        needed[p / layout_.block_size] = true;
      } else {
        Poison(part.sequence, p);
      }
    }
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (!needed[i]) tables_[part.sequence][i] = kNoBlock;
    }
  }

  // Parts of random sequences, at most one of each.
  std::vector<Part> RandomParts() {
    std::vector<Part> parts;
    for (int s = 0; s < num_sequences(); ++s) {
      const int start = static_cast<int>(random_() % length(s));
      parts.push_back({s, start, 1 + static_cast<int>(random_() % (length(s) - start))});
    }
    return parts;
  }

  std::mt19937& random() { return random_; }

 private:
  static constexpr int kLayer = 1;
  // Far outside the pool: whoever reads there crashes.
  static constexpr BlockId kNoBlock = -(1 << 28);
  int kv_columns() const { return plan_.num_kv_heads * plan_.head_dim; }

  std::span<std::byte> BlockOf(int sequence, int position) {
    return pool_->Block(kLayer, tables_[sequence][position / layout_.block_size]);
  }

  // Writes one token's keys and values to its slot, and rounds them here as the slot did.
  void Store(int sequence, int position) {
    std::byte* block = BlockOf(sequence, position).data();
    for (int h = 0; h < plan_.num_kv_heads; ++h) {
      for (int v = 0; v < 2; ++v) {
        float* row = (v == 0 ? keys_ : values_)[sequence].data() + position * kv_columns() +
                     h * plan_.head_dim;
        std::byte* to =
            block + v * layout_.half_block_bytes() +
            static_cast<std::size_t>(h * layout_.block_size + position % layout_.block_size) *
                plan_.head_dim * layout_.element_bytes();
        for (int d = 0; d < plan_.head_dim; ++d) {
          if (layout_.dtype == KvDType::kF32) {
            std::memcpy(to + 4 * d, &row[d], 4);
          } else {
            const std::uint16_t half = checkpoint::FloatToHalf(row[d]);
            std::memcpy(to + 2 * d, &half, 2);
            row[d] = checkpoint::HalfToFloat(half);
          }
        }
      }
    }
  }

  const Shape shape_;
  std::mt19937 random_;
  LayerPlan plan_;
  KvLayout layout_;
  std::vector<int> lengths_;
  std::unique_ptr<KvPool> pool_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<std::vector<float>> keys_, values_, queries_;
};

const Shape kShapes[] = {
    {.num_kv_heads = 3, .group = 3, .head_dim = 64},
    {.num_kv_heads = 2, .group = 1, .head_dim = 32, .block_size = 4, .dtype = KvDType::kF32},
    {.num_kv_heads = 1, .group = 8, .head_dim = 128, .block_size = 1},
    {.num_kv_heads = 1, .group = 7, .head_dim = 80, .block_size = 37, .max_context = 200},
    {.num_kv_heads = 2, .group = 5, .head_dim = 20, .block_size = 64, .dtype = KvDType::kF32},
    {.num_kv_heads = 2, .group = 2, .head_dim = 8, .window = 1},
    {.num_kv_heads = 1, .group = 4, .head_dim = 24, .window = 20, .softcap = 3.0f},
    {.num_kv_heads = 4, .group = 1, .head_dim = 40, .dtype = KvDType::kF32, .window = 64},
    {.num_kv_heads = 1, .group = 16, .head_dim = 96, .window = 65},
    {.num_kv_heads = 2, .group = 1, .head_dim = 192, .softcap = 50.0f},
    {.num_kv_heads = 1,
     .group = 2,
     .head_dim = 256,
     .block_size = 8,
     .window = 100,
     .softcap = 5.0f},
};
// Contexts beyond two splits of keys.
const Shape kLongShapes[] = {
    {.group = 3, .head_dim = 32, .max_context = 1400},
    {.num_kv_heads = 2, .group = 2, .head_dim = 24, .max_context = 1800, .window = 600},
    {.group = 1, .head_dim = 64, .dtype = KvDType::kF32, .max_context = 2500, .window = 5},
};

std::vector<Shape> AllShapes() {
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  shapes.insert(shapes.end(), std::begin(kLongShapes), std::end(kLongShapes));
  return shapes;
}

TEST(AttentionTest, RowsAreThoseOfAPlainSoftmax) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    ThreadPool pool({.num_threads = 2});
    Attention attention(pool);
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(Describe(shape));
      AttentionCase test(shape, 21);
      std::vector<AttentionCase::Part> parts;
      for (int s = 0; s < test.num_sequences(); ++s) parts.push_back({s, 0, test.length(s)});

      const auto rows = test.Run(attention, parts);

      int row = 0;
      for (int s = 0; s < test.num_sequences(); ++s) {
        for (int p = 0; p < test.length(s); ++p, ++row) {
          if (p % 5 != 0 && p != test.length(s) - 1) continue;
          const std::vector<float> expected = test.Expected(s, p);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(rows[row][i], expected[i], 5e-6) << "position " << p << ", column " << i;
          }
        }
      }
    }
  }
}

// Property: the bits of a row are the same alone, in any chunk, batch and number of threads.
TEST(AttentionTest, BitsDoNotDependOnChunksCompanyOrThreads) {
  ThreadPool one({.num_threads = 1});
  ThreadPool three({.num_threads = 3, .spin = absl::ZeroDuration()});
  Attention alone(one);
  Attention together(three);
  for (const Shape& shape : AllShapes()) {
    for (unsigned seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", Describe(shape)));
      AttentionCase test(shape, seed);
      const std::vector<AttentionCase::Part> parts = test.RandomParts();

      const auto rows = test.Run(together, parts);

      int row = 0;
      for (const AttentionCase::Part& part : parts) {
        for (int p = part.start; p < part.start + part.count; ++p, ++row) {
          if (p % 3 != 0 && p + 1 != part.start + part.count) continue;
          ASSERT_EQ(test.Run(alone, {{part.sequence, p, 1}})[0], rows[row]) << "position " << p;
        }
      }
    }
  }
}

TEST(AttentionTest, LongContextsAreThoseOfAPlainSoftmax) {
  ThreadPool pool({.num_threads = 2});
  Attention attention(pool);
  for (const Shape& shape : kLongShapes) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", Describe(shape)));
      AttentionCase test(shape, seed);
      for (int s = 0; s < test.num_sequences(); ++s) {
        const int last = test.length(s) - 1;

        const std::vector<float> row = test.Run(attention, {{s, last, 1}})[0];

        const std::vector<float> expected = test.Expected(s, last);
        for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(row[i], expected[i], 5e-6);
      }
    }
  }
}

// Property: what no row of a batch sees is not read, so its blocks need not even exist.
TEST(AttentionTest, SlotsThatNoRowSeesAreNotTouched) {
  ThreadPool pool({.num_threads = 2});
  Attention attention(pool);
  for (const Shape& shape : AllShapes()) {
    for (unsigned seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", Describe(shape)));
      AttentionCase test(shape, seed);
      std::vector<AttentionCase::Part> parts = test.RandomParts();
      if (seed % 2 == 0) {
        for (AttentionCase::Part& part : parts) part.count = 1;
      }
      const auto rows = test.Run(attention, parts);

      for (const AttentionCase::Part& part : parts) test.HideFrom(part);

      ASSERT_EQ(test.Run(attention, parts), rows);
    }
  }
}

// Property: a slot of NaN (of a huge number, where a processor's half floats have no NaN) reaches
// the rows that see it and no others, of the same chunk included.
TEST(AttentionTest, NanReachesOnlyTheRowsThatSeeIt) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    ThreadPool pool({.num_threads = 2});
    Attention attention(pool);
    for (const Shape& shape : kShapes) {
      for (unsigned seed = 0; seed < 3; ++seed) {
        SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", Describe(shape)));
        AttentionCase test(shape, seed);
        const int length = test.length(0);
        const auto rows = test.Run(attention, {{0, 0, length}});
        const int poisoned = static_cast<int>(test.random()() % length);

        test.Poison(0, poisoned);
        const auto after = test.Run(attention, {{0, 0, length}});

        for (int row = 0; row < length; ++row) {
          if (test.Sees(row, poisoned)) {
            ASSERT_NE(after[row], rows[row]) << "row " << row << ", NaN at " << poisoned;
          } else {
            ASSERT_EQ(after[row], rows[row]) << "row " << row << ", NaN at " << poisoned;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::engine::cpu
