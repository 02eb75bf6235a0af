#pragma once
#include <span>

#include "engine/ops/cpu/activation_buffer.h"
#include "engine/ops/cpu/activations.h"
#include "engine/ops/cpu/matmul.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// Activations with their columns in the order that weights have theirs in
// (PackedMatrix::column_order): moved as floats and quantized anew, since the groups that share a
// scale change. Thread-compatible.
class OrderedInput {
 public:
  explicit OrderedInput(ThreadPool& pool) : pool_(pool), buffer_(pool) {}

  // `x` itself where no product's weights have an order; else a copy of the products' rows, each in
  // its weights' order, at the same places and in the same forms, valid until the next call.
  //   x.floats is set; no row is in two products
  Activations Apply(const Activations& x, std::span<const Product> products);
  // The same of all rows for one matrix.
  Activations Apply(const Activations& x, const PackedMatrix& weights);

 private:
  ThreadPool& pool_;
  ActivationBuffer buffer_;
};

// Whether an input in the order of `a` is one in the order of `b`.
inline bool SameOrder(const PackedMatrix& a, const PackedMatrix& b) {
  return a.column_order().data() == b.column_order().data();
}

}  // namespace baton::engine::cpu
