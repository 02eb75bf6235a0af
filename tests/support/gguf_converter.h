#pragma once
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tests/support/gguf_builder.h"

namespace baton::testing {

enum class GgufMatrices : std::uint8_t { kF32, kAsStored };

struct GgufConversion {
  GgufMatrices matrices = GgufMatrices::kF32;
  // Each expert a tensor of its own, as converters wrote Mixtral's before April 2024.
  bool split_experts = false;
};

// Makes a GGUF of a Hugging Face directory as llama.cpp's convert_hf_to_gguf.py does: keys, tensor
// names, the order of rows of q and k, norms, stacked experts and rope factors follow its
// conversion/ and gguf-py/ folders and owe nothing to Baton's own tables, so that a file made here
// proves that Baton reads theirs. llama.cpp itself (0.5.0, float32 KV) gives all golden greedy
// tokens from the files made of tests/golden/arch, but for the Mistral, whose window it ignores.
// Vectors, norms and routers are F32 always. Without a tokenizer the vocabulary is made up.
//
// Where their format has no place for what a model states, this differs, so that the arithmetic
// stays the model's:
//   - a Mistral's window goes to llama.attention.sliding_window; theirs drops it;
//   - query_pre_attn_scalar is folded into the weights of q, or of its norm; theirs knows the
//     published sizes only, whose scale follows from other sizes;
//   - llama3 rope factors follow the original context that rope_scaling states; theirs takes 8192;
//   - gemma3's pattern of windows is stated where it is not the implied 6.
//   kUnimplemented    the format cannot say it (dynamic rope scaling), or never could so (split
//                     experts of other models than Mixtral); the message says what
//   kInvalidArgument  an architecture or a tensor not known here
absl::StatusOr<GgufBuilder> ConvertToGguf(const std::string& directory,
                                          const GgufConversion& conversion);

}  // namespace baton::testing
