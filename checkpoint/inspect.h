#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"

namespace baton::checkpoint {

// What `baton inspect` says about a model, before any decision on how to run it.
struct ModelFacts {
  ModelMetadata metadata;
  std::int64_t parameters = 0;    // elements of all tensors; tied embeddings count once
  std::int64_t tensor_bytes = 0;  // as stored
  struct TypeShare {
    int tensors = 0;
    std::int64_t parameters = 0;
    std::int64_t bytes = 0;
  };
  std::map<DType, TypeShare> by_type;
  double bits_per_parameter = 0;
  std::int64_t vocabulary_tokens = 0;  // of a GGUF vocabulary; 0 when it is in a tokenizer.json
  bool has_tokenizer = false;
  bool has_chat_template = false;
};

// Reads no tensor data.
ModelFacts Inspect(const Checkpoint& checkpoint);

// Bytes on disk of what Checkpoint::Open reads weights from at `path`: the GGUF file with
// its other parts, or the safetensors files of the directory. kNotFound and others as the file
// system says.
absl::StatusOr<std::int64_t> WeightFileBytes(const std::string& path);

// Bytes of K and V that one token of context takes over all layers, with `bytes_per_element` for
// one number of the cache (4 in f32, 2 in f16).
std::int64_t KvBytesPerToken(const ModelMetadata& metadata, int bytes_per_element);

}  // namespace baton::checkpoint
