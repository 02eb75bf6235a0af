#include "bench/ops/ceilings.h"

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>

extern "C" void openblas_set_num_threads(int num_threads);

namespace baton::bench {
namespace {

constexpr std::size_t kReadBytes = std::size_t{512} << 20;

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Adds up a buffer in eight independent streams of words, which the compiler turns into vector
// loads and additions: as fast as memory delivers.
std::uint64_t SumWords(const char* from, std::size_t bytes) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 64 <= bytes; i += 64) {
    std::uint64_t words[8];
    std::memcpy(words, from + i, 64);
    for (int j = 0; j < 8; ++j) sums[j] += words[j];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

Ceilings::Ceilings(int num_threads) : num_threads_(num_threads) {
  openblas_set_num_threads(num_threads);
}

double Ceilings::ReadBandwidth(int repeats) {
  if (memory_.empty()) memory_.assign(kReadBytes, 1);
  double best = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::vector<std::uint64_t> sums(num_threads_);
    std::vector<std::thread> threads;
    const auto start = std::chrono::steady_clock::now();
    const std::size_t share = kReadBytes / num_threads_;
    for (int i = 0; i < num_threads_; ++i) {
      threads.emplace_back([&, i] { sums[i] = SumWords(memory_.data() + i * share, share); });
    }
    for (std::thread& thread : threads) thread.join();
    const double seconds = Seconds(start);
    if (sums[0] != 0) best = std::max(best, static_cast<double>(kReadBytes) / seconds);
  }
  return best;
}

double Ceilings::SgemmSeconds(int rows, int columns, int inner, int repeats) {
  const std::vector<float> a(static_cast<std::size_t>(rows) * inner, 0.5f);
  const std::vector<float> b(static_cast<std::size_t>(columns) * inner, 0.25f);
  std::vector<float> c(static_cast<std::size_t>(rows) * columns);
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, columns, inner, 1.0f, a.data(),
                inner, b.data(), inner, 0.0f, c.data(), columns);
    if (repeat > 0) best = std::min(best, Seconds(start));
  }
  return best;
}

double Ceilings::SgemmRate(int rows, int columns, int inner, int repeats) {
  return 2.0 * rows * columns * inner / SgemmSeconds(rows, columns, inner, repeats);
}

double Ceilings::SgemmLayerSeconds(int rows, int hidden, int q_columns, int kv_columns,
                                   int intermediate, int repeats) {
  return SgemmSeconds(rows, q_columns + 2 * kv_columns, hidden, repeats) +
         SgemmSeconds(rows, hidden, q_columns, repeats) +
         SgemmSeconds(rows, 2 * intermediate, hidden, repeats) +
         SgemmSeconds(rows, hidden, intermediate, repeats);
}

}  // namespace baton::bench
