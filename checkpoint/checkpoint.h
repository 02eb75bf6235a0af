#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/tensor.h"
#include "checkpoint/text_assets.h"

namespace baton::checkpoint {

// A model on disk, memory-mapped and checked: every tensor lies inside its file and has the shape
// that the metadata demands. Immutable and thread-safe after Open. Tensor data stays valid as long
// as the Checkpoint lives.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // Opens a .gguf file or a Hugging Face directory, whichever `path` is. No weight is read.
  //   kNotFound            nothing there, or a part named by the index is missing
  //   kInvalidArgument     damaged: truncated, overlapping or lying offsets, missing or misshapen
  //                        tensors; the message names file, tensor and what was expected
  //   kFailedPrecondition  well-formed but unsupported: architecture, tensor type; lists what is
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& path);

  virtual const ModelMetadata& metadata() const = 0;
  virtual const TextAssets& text_assets() const = 0;

  // Tensors under canonical names, the same for every format and family. Fused and stacked tensors
  // of a file appear as their parts.
  //   token_embedding.weight [vocab, hidden]
  //   output_norm.weight [hidden]
  //   output.weight [vocab, hidden]                  absent when metadata().tied_embeddings
  //   layers.N.{attention,mlp}_norm.weight [hidden]
  //   layers.N.{attention,mlp}_post_norm.weight [hidden]       when post_norms
  //   layers.N.{q,k}_norm.weight [head_dim]                    when qk_norm
  //   layers.N.q.weight [heads * head_dim, hidden]
  //   layers.N.{k,v}.weight [kv_heads * head_dim, hidden]
  //   layers.N.o.weight [hidden, heads * head_dim]
  //   layers.N.{gate,up}.weight [intermediate, hidden]         without experts
  //   layers.N.down.weight [hidden, intermediate]
  //   layers.N.router.weight [experts, hidden]                 with experts
  //   layers.N.experts.E.{gate,up}.weight [expert_intermediate, hidden]
  //   layers.N.experts.E.down.weight [hidden, expert_intermediate]
  // and NAME.bias of those linear maps that have one.
  // Returns nullptr for a name the model lacks.
  virtual const Tensor* Find(std::string_view canonical_name) const = 0;
  // Every tensor, in canonical-name order.
  virtual const std::map<std::string, Tensor, std::less<>>& tensors() const = 0;

  // Identity of the weights, for the fingerprint handshake between workers: SHA-256 over metadata,
  // tensor names, types, shapes and sampled contents. Lower-case hex. Computed at the first call
  // (some milliseconds).
  virtual const std::string& fingerprint() const = 0;
};

}  // namespace baton::checkpoint
