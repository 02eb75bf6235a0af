// Micro-benchmarks of the CPU kernels at the shapes of SmolLM2-135M, one thread, beside OpenBLAS's
// sgemm on the same shapes and the rate of memory reads.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "bench/ops/ceilings.h"
#include "checkpoint/tensor.h"
#include "engine/ops/cpu/aligned_buffer.h"
#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/matmul.h"

namespace baton::engine::cpu {
namespace {

using checkpoint::DType;

// A matrix of random blocks with small scales.
struct Weights {
  Weights(DType dtype, int rows, int columns) : pool({.num_threads = 1}) {
    const int block = checkpoint::BlockBytes(dtype);
    bytes.resize(static_cast<std::size_t>(rows) * columns / checkpoint::BlockElements(dtype) *
                 block);
    std::mt19937 random(1);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0x33);
    checkpoint::Tensor tensor{
        .name = "bench", .dtype = dtype, .shape = {rows, columns}, .data = bytes};
    packed = *PackedMatrix::Pack(tensor, pool, memory);
  }
  ThreadPool pool;
  WeightMemory memory;
  std::vector<std::byte> bytes;
  PackedMatrix packed;
};

struct Rows {
  Rows(int num_rows, int columns)
      : floats(static_cast<std::size_t>(num_rows) * columns),
        groups(static_cast<std::size_t>(num_rows) * columns / kGroup) {
    for (std::size_t i = 0; i < floats.size(); ++i) floats[i] = std::sin(static_cast<float>(i));
    QuantizeRow(floats.data(), num_rows * columns, groups.data());
    view = {floats.data(), static_cast<std::size_t>(columns), groups.data(),
            static_cast<std::size_t>(columns) / kGroup, num_rows};
  }
  std::vector<float> floats;
  std::vector<QuantizedGroup> groups;
  Activations view;
};

void SetRate(benchmark::State& state, double operations) {
  state.counters["GOP/s"] =
      benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// One product of `rows` activation rows by [outputs, columns] weights.
template <DType kDType, bool kInteger>
void Product(benchmark::State& state) {
  const int rows = static_cast<int>(state.range(0));
  const int outputs = static_cast<int>(state.range(1));
  const int columns = static_cast<int>(state.range(2));
  Weights weights(kDType, outputs, columns);
  const Rows x(rows, columns);
  Activations view = x.view;
  if (!kInteger) view.quantized = nullptr;
  const PackedMatrix* parts[] = {&weights.packed};
  for (auto _ : state) {
    MatMul(weights.pool, view, parts,
           [](int, int, int, int, int, const float* block) { benchmark::DoNotOptimize(*block); });
  }
  SetRate(state, 2.0 * rows * outputs * columns);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(weights.packed.bytes()));
}

void Sgemm(benchmark::State& state) {
  bench::Ceilings ceilings(1);
  const int rows = static_cast<int>(state.range(0));
  const int outputs = static_cast<int>(state.range(1));
  const int columns = static_cast<int>(state.range(2));
  const double operations = 2.0 * rows * outputs * columns;
  for (auto _ : state) {
    state.SetIterationTime(operations / ceilings.SgemmRate(rows, outputs, columns, 3));
  }
  SetRate(state, operations);
}

void ReadMemory(benchmark::State& state) {
  bench::Ceilings ceilings(static_cast<int>(state.range(0)));
  for (auto _ : state) state.SetIterationTime(1e9 / ceilings.ReadBandwidth(1));
  state.counters["GB/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}

// q and k and v, o, gate and up, down: of the layers; then the head.
void LayerShapes(benchmark::internal::Benchmark* bench) {
  for (const int rows : {1, 8, 512}) {
    bench->Args({rows, 960, 576})->Args({rows, 576, 576});
    bench->Args({rows, 3072, 576})->Args({rows, 576, 1536});
  }
}
void HeadShapes(benchmark::internal::Benchmark* bench) {
  for (const int rows : {1, 8}) bench->Args({rows, 49152, 576});
}

BENCHMARK(Product<DType::kQ4_1, true>)->Apply(LayerShapes)->Name("IntegerQ4_1");
BENCHMARK(Product<DType::kQ4_1, false>)->Apply(LayerShapes)->Name("FloatQ4_1");
BENCHMARK(Product<DType::kF16, false>)->Apply(LayerShapes)->Name("FloatF16");
BENCHMARK(Product<DType::kQ8_0, true>)->Apply(HeadShapes)->Name("IntegerQ8_0");
// The ways that tiles keep small integers: plain, with zeros, codes of a table, bit pairs.
void QuantizedShapes(benchmark::internal::Benchmark* bench) {
  for (const int rows : {1, 512}) bench->Args({rows, 4096, 4096});
}
BENCHMARK(Product<DType::kQ4_0, true>)->Apply(QuantizedShapes)->Name("IntegerQ4_0");
BENCHMARK(Product<DType::kInt4, true>)->Apply(QuantizedShapes)->Name("IntegerInt4");
BENCHMARK(Product<DType::kIQ4_XS, true>)->Apply(QuantizedShapes)->Name("IntegerIQ4_XS");
BENCHMARK(Product<DType::kMXFP4, true>)->Apply(QuantizedShapes)->Name("IntegerMXFP4");
BENCHMARK(Product<DType::kQ2_K, true>)->Apply(QuantizedShapes)->Name("IntegerQ2_K");
BENCHMARK(Product<DType::kQ3_K, true>)->Apply(QuantizedShapes)->Name("IntegerQ3_K");
BENCHMARK(Sgemm)->Apply(LayerShapes)->UseManualTime()->Iterations(3);
BENCHMARK(ReadMemory)->Arg(1)->Arg(2)->UseManualTime()->Iterations(5);

void Norm(benchmark::State& state) {
  const Rows x(1, 576);
  std::vector<float> out(576);
  for (auto _ : state) {
    RmsNormRow(x.floats.data(), x.floats.data(), 1e-5f, 576, out.data());
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(Norm);

void Quantize(benchmark::State& state) {
  Rows x(1, 576);
  for (auto _ : state) {
    QuantizeRow(x.floats.data(), 576, x.groups.data());
    benchmark::DoNotOptimize(x.groups.data());
  }
}
BENCHMARK(Quantize);

// range(0): the Activation.
void Gate(benchmark::State& state) {
  const Rows x(1, 1536);
  std::vector<float> out(1536);
  for (auto _ : state) {
    ActivateGate(static_cast<Activation>(state.range(0)), x.floats.data(), x.floats.data(), 1536,
                 out.data());
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(Gate)->DenseRange(0, 2);

// One tile of 64 f16 keys for range(0) queries of 64 dimensions, widening included.
void AttentionTile(benchmark::State& state) {
  constexpr int kDim = 64;
  const int queries = static_cast<int>(state.range(0));
  AlignedBuffer<float> keys(kKeyTile * kDim), values(kKeyTile * kDim);
  const std::vector<std::uint16_t> stored(kKeyTile * kDim, 0x3800);
  const std::vector<float> q(static_cast<std::size_t>(queries) * kDim, 0.1f);
  const std::vector<KeyRange> visible(queries, KeyRange{0, kKeyTile});
  std::vector<float> max(queries), sum(queries), out(static_cast<std::size_t>(queries) * kDim);
  const KeyValueTile tile{keys.data(), values.data()};
  for (auto _ : state) {
    LoadKeyValues(stored.data(), stored.data(), true, 0, kKeyTile, kDim, tile);
    AttendTile(q.data(), visible.data(), queries, kDim, /*softcap=*/0.0f, tile,
               {max.data(), sum.data(), out.data()});
    benchmark::DoNotOptimize(out.data());
  }
  SetRate(state, 4.0 * queries * kKeyTile * kDim);
}
BENCHMARK(AttentionTile)->Arg(3)->Arg(96);

}  // namespace
}  // namespace baton::engine::cpu

BENCHMARK_MAIN();
