#include "engine/ops/cuda/kernels/qkv_rope.h"

#include <numeric>

#include "engine/ops/reference/rms_norm.h"
#include "engine/ops/reference/rope.h"
#include "tests/support/cuda_test.h"
#include "tests/support/kernel_values.h"

namespace baton::engine::cuda {
namespace {

struct QkvCase {
  int num_heads, num_kv_heads, head_dim, rope_dim, block_size;
  bool interleaved, bias, norm;
};

// A ragged batch over a small pool, with filling rows and shuffled blocks.
struct RandomBatch {
  std::vector<int> positions, row_sequence, block_tables;
  int max_blocks = 0, num_blocks = 0;

  RandomBatch(int block_size, std::mt19937& random) {
    constexpr int kSequences = 4, kLongest = 90;
    max_blocks = (kLongest + block_size - 1) / block_size;
    num_blocks = kSequences * max_blocks;
    block_tables.resize(num_blocks);
    std::iota(block_tables.begin(), block_tables.end(), 0);
    std::shuffle(block_tables.begin(), block_tables.end(), random);
    for (int sequence = 0; sequence < kSequences; ++sequence) {
      const int rows = 1 + static_cast<int>(random() % (sequence % 2 == 0 ? 1 : 9));
      const int start = static_cast<int>(random() % (kLongest - rows));
      for (int i = 0; i < rows; ++i) Add(start + i, sequence);
      if (sequence % 2 == 1) Add(0, -1);
    }
  }
  void Add(int position, int sequence) {
    positions.push_back(position);
    row_sequence.push_back(sequence);
  }
  int num_rows() const { return static_cast<int>(positions.size()); }
};

template <class T>
class QkvRopeTest : public testing::CudaTest {
 protected:
  // What the row's heads become, by the reference's functions: [heads + 2 kv heads, head_dim].
  static std::vector<float> Want(const QkvCase& c, const T* qkv, const std::vector<float>& bias,
                                 const std::vector<float>& q_norm, const std::vector<float>& k_norm,
                                 const float* cos, const float* sin) {
    const int rotated = c.num_heads + c.num_kv_heads;
    std::vector<float> heads(static_cast<std::size_t>(rotated + c.num_kv_heads) * c.head_dim);
    for (std::size_t i = 0; i < heads.size(); ++i) {
      heads[i] = testing::FloatOf(qkv[i]) + (c.bias ? bias[i] : 0.0f);
    }
    for (int head = 0; head < rotated && c.norm; ++head) {
      float* values = heads.data() + head * c.head_dim;
      reference::RmsNormRow({values, static_cast<std::size_t>(c.head_dim)},
                            head < c.num_heads ? q_norm : k_norm, 1e-6f, values);
    }
    Rope rope;
    rope.dim = c.rope_dim;
    rope.interleaved = c.interleaved;
    reference::RopeRow(rope, cos, sin, rotated, c.head_dim, heads.data());
    return heads;
  }
};
TYPED_TEST_SUITE(QkvRopeTest, testing::KernelTypes);

TYPED_TEST(QkvRopeTest, WritesQAndTheCacheAsTheReferenceDoesAndNothingElse) {
  using T = TypeParam;
  std::mt19937 random(5);
  for (const QkvCase& c :
       {QkvCase{4, 2, 64, 64, 16, false, false, false},
        QkvCase{9, 3, 64, 64, 16, true, true, false}, QkvCase{3, 1, 24, 24, 16, false, true, true},
        QkvCase{2, 2, 16, 10, 32, true, false, true},
        QkvCase{2, 1, 128, 128, 16, false, true, true},
        QkvCase{4, 4, 80, 20, 64, false, false, true},
        QkvCase{2, 1, 256, 64, 16, true, false, true}, QkvCase{3, 3, 8, 8, 16, false, false, false},
        QkvCase{5, 1, 96, 0, 16, false, true, false}}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << c.head_dim << ", rope " << c.rope_dim);
    const RandomBatch batch(c.block_size, random);
    const int num_rows = batch.num_rows(), num_heads = c.num_heads + 2 * c.num_kv_heads;
    const std::size_t width = static_cast<std::size_t>(num_heads) * c.head_dim;
    const std::size_t q_width = static_cast<std::size_t>(c.num_heads) * c.head_dim;
    const std::size_t half = static_cast<std::size_t>(c.num_kv_heads) * c.block_size * c.head_dim;
    const auto qkv = testing::RoundAll<T>(testing::NormalFloats(num_rows * width, random));
    const auto bias = testing::NormalFloats(width, random);
    const auto q_norm = testing::NormalFloats(c.head_dim, random);
    const auto k_norm = testing::NormalFloats(c.head_dim, random);
    const std::size_t pairs = c.rope_dim / 2;
    const auto cos = testing::NormalFloats(num_rows * pairs + 1, random);
    const auto sin = testing::NormalFloats(num_rows * pairs + 1, random);
    const auto d_qkv = this->ToDevice(qkv);
    const auto d_bias = this->ToDevice(bias), d_q_norm = this->ToDevice(q_norm);
    const auto d_k_norm = this->ToDevice(k_norm);
    const auto d_cos = this->ToDevice(cos), d_sin = this->ToDevice(sin);
    const auto d_positions = this->ToDevice(batch.positions);
    const auto d_sequence = this->ToDevice(batch.row_sequence);
    const auto d_tables = this->ToDevice(batch.block_tables);
    const DeviceBatch device_batch{.tokens = nullptr,
                                   .positions = d_positions.template as<int>(),
                                   .row_sequence = d_sequence.template as<int>(),
                                   .sequences = nullptr,
                                   .block_tables = d_tables.template as<int>(),
                                   .max_blocks = batch.max_blocks,
                                   .num_rows = num_rows,
                                   .num_sequences = 4};
    const QkvShape shape{.num_heads = c.num_heads,
                         .num_kv_heads = c.num_kv_heads,
                         .head_dim = c.head_dim,
                         .rope_dim = c.rope_dim,
                         .interleaved = c.interleaved,
                         .bias = c.bias ? d_bias.template as<float>() : nullptr,
                         .q_norm = c.norm ? d_q_norm.template as<float>() : nullptr,
                         .k_norm = c.norm ? d_k_norm.template as<float>() : nullptr,
                         .norm_eps = 1e-6f};

    // What no row writes keeps this value.
    constexpr float kUntouched = 77.0f;
    std::vector<double> want_q(num_rows * q_width, kUntouched);
    std::vector<double> want_pool(batch.num_blocks * 2 * half, kUntouched);
    for (int row = 0; row < num_rows; ++row) {
      if (batch.row_sequence[row] < 0) continue;
      const auto heads = TestFixture::Want(c, qkv.data() + row * width, bias, q_norm, k_norm,
                                           cos.data() + row * pairs, sin.data() + row * pairs);
      std::copy_n(heads.begin(), q_width, want_q.begin() + row * q_width);
      const int position = batch.positions[row];
      const int block =
          batch.block_tables[batch.row_sequence[row] * batch.max_blocks + position / c.block_size];
      for (int head = 0; head < 2 * c.num_kv_heads; ++head) {  // K, then V
        const std::size_t to =
            block * 2 * half +
            (static_cast<std::size_t>(head) * c.block_size + position % c.block_size) * c.head_dim;
        std::copy_n(heads.begin() + q_width + head * c.head_dim, c.head_dim,
                    want_pool.begin() + to);
      }
    }

    std::vector<T> first_q, first_pool;
    testing::UnderSeveralSchedules([&] {
      const auto q = this->ToDevice(std::vector<T>(want_q.size(), testing::RoundTo<T>(kUntouched)));
      const auto pool =
          this->ToDevice(std::vector<T>(want_pool.size(), testing::RoundTo<T>(kUntouched)));
      const KvView<T> kv{.data = pool.template as<T>(),
                         .num_kv_heads = c.num_kv_heads,
                         .head_dim = c.head_dim,
                         .block_size = c.block_size};

      testing::ExpectCuda(QkvRopeAppend(device_batch, shape, d_qkv.template as<T>(),
                                        d_cos.template as<float>(), d_sin.template as<float>(), kv,
                                        q.template as<T>(), this->stream()));

      const auto got_q = this->template ToHost<T>(q, want_q.size());
      const auto got_pool = this->template ToHost<T>(pool, want_pool.size());
      for (std::size_t i = 0; i < got_q.size(); ++i) {
        testing::ExpectRounded(got_q[i], want_q[i]);
      }
      for (std::size_t i = 0; i < got_pool.size(); ++i) {
        testing::ExpectRounded(got_pool[i], want_pool[i]);
      }
      if (first_q.empty()) first_q = got_q, first_pool = got_pool;
      EXPECT_TRUE(testing::SameBits(got_q, first_q));
      EXPECT_TRUE(testing::SameBits(got_pool, first_pool));
    });
  }
}

TYPED_TEST(QkvRopeTest, RefusesShapesItCannotCompute) {
  using T = TypeParam;
  DeviceBatch batch{};
  batch.num_rows = 1;
  QkvShape shape{};
  shape.num_heads = 2, shape.num_kv_heads = 1, shape.head_dim = 64, shape.rope_dim = 64;
  KvView<T> kv{.data = nullptr, .num_kv_heads = 1, .head_dim = 64, .block_size = 16};
  const auto run = [&] {
    const T* qkv = nullptr;
    T* q = nullptr;
    return QkvRopeAppend(batch, shape, qkv, nullptr, nullptr, kv, q, this->stream());
  };
  shape.rope_dim = 66;
  EXPECT_EQ(run(), cudaErrorInvalidValue);
  shape.rope_dim = 64, kv.num_kv_heads = 2;
  EXPECT_EQ(run(), cudaErrorInvalidValue);
  kv.num_kv_heads = 1, shape.head_dim = kv.head_dim = 68;
  EXPECT_EQ(run(), cudaErrorInvalidValue);
  shape.head_dim = kv.head_dim = 264;
  EXPECT_EQ(run(), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace baton::engine::cuda
