#pragma once
#include <cstdint>
#include <span>

#include "engine/ops/cpu/activations.h"
#include "engine/ops/cpu/aligned_buffer.h"
#include "engine/ops/cpu/packed_matrix.h"
#include "engine/ops/ops.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// The forms in which some matrices read their activations.
struct ActivationForms {
  bool floats = false;
  bool quantized = false;
  // Adds the form that `matrix` reads: integers where `compute` is kFast and its weights are; also
  // floats where its columns have an order, to be moved into it.
  void Add(const PackedMatrix& matrix, ComputeMode compute);
};

// Memory for rows of activations, in the forms that the next product reads, and the ways to fill
// it. What a function returns is valid until the next call of any. Thread-compatible.
class ActivationBuffer {
 public:
  explicit ActivationBuffer(ThreadPool& pool) : pool_(pool) {}

  // Room for rows that the caller writes, through floats() and groups() at the result's strides.
  // Where `quantized`, `columns` is a multiple of 32.
  Activations Reserve(int num_rows, int columns, const ActivationForms& forms);
  float* floats() const { return floats_.data(); }
  QuantizedGroup* groups() const { return groups_.data(); }

  // RmsNorm of rows rows[i] (of i, where `rows` is empty) of x; always as floats, also quantized
  // where `quantized`.
  Activations Normalize(Matrix x, std::span<const std::int32_t> rows, int num_rows,
                        std::span<const float> weight, float eps, bool quantized);
  // The rows of `x` as they are, also quantized where `quantized`.
  Activations Prepare(Matrix x, bool quantized);
  // Copies of rows rows[i] of `from`, which is not of this buffer, in the forms it has.
  Activations Gather(const Activations& from, std::span<const std::int32_t> rows);

 private:
  ThreadPool& pool_;
  AlignedBuffer<float> floats_;
  AlignedBuffer<QuantizedGroup> groups_;
};

}  // namespace baton::engine::cpu
