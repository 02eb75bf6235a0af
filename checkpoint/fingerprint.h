#pragma once
#include <functional>
#include <map>
#include <string>

#include "checkpoint/model_metadata.h"
#include "checkpoint/tensor.h"

namespace baton::checkpoint {

// SHA-256, in lower-case hex, over everything that decides what a model computes: hyperparameters,
// and of every tensor name, type, shape, column order and the first, middle and last 4 KiB. The
// model's name and place are left out, so copies of a model on two hosts agree. Two checkpoints
// that differ only between the samples collide; any training step changes all of a tensor, so that
// needs intent. Cost: 12 KiB read per tensor, about 3 ms for 272 tensors once in memory.
std::string Fingerprint(const ModelMetadata& metadata,
                        const std::map<std::string, Tensor, std::less<>>& tensors);

}  // namespace baton::checkpoint
