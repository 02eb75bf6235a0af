#pragma once
#include <cstddef>
#include <vector>

namespace baton::bench {

// What the machine can do at best, measured beside the thing it bounds.
class Ceilings {
 public:
  explicit Ceilings(int num_threads);

  // Reads a buffer far larger than any cache on all threads; bytes per second of the best of
  // `repeats` passes.
  double ReadBandwidth(int repeats);
  // OpenBLAS sgemm, [rows, columns] = [rows, inner] x [columns, inner]^T on all threads: floating
  // point operations per second of the best of `repeats` runs.
  double SgemmRate(int rows, int columns, int inner, int repeats);
  // Seconds that OpenBLAS needs for the matrix products of one decoder layer of a Llama-shaped
  // model over `rows` tokens: q, k and v as one, o, gate and up as one, down.
  double SgemmLayerSeconds(int rows, int hidden, int q_columns, int kv_columns, int intermediate,
                           int repeats);

 private:
  double SgemmSeconds(int rows, int columns, int inner, int repeats);
  const int num_threads_;
  std::vector<char> memory_;
};

}  // namespace baton::bench
