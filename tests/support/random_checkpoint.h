#pragma once
#include <memory>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/tensor.h"

namespace baton::testing {

// A Llama-shaped metadata small enough for tests that run many steps.
checkpoint::ModelMetadata TinyMetadata();

// A model in memory with random weights of a trained model's magnitude, for tests that compare
// backends or batchings rather than text. Matrices are stored as `matrices` (quantized ones get
// random blocks), norms and biases as F32. Every column count must be a multiple of the dtype's
// block. With `act_order` the columns of every matrix but the embedding have an order, k that of q
// and the others one of their own. The same arguments give the same bits.
std::shared_ptr<const checkpoint::Checkpoint> MakeRandomCheckpoint(
    const checkpoint::ModelMetadata& metadata, checkpoint::DType matrices, unsigned seed,
    bool act_order = false);

}  // namespace baton::testing
