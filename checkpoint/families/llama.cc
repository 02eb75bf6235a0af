#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"LlamaForCausalLM"};
constexpr std::string_view kNames[] = {"llama"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::max_context, 2048}};

}  // namespace

// Llama 1 to 3.3 and what shares its shape: SmolLM 1 and 2, TinyLlama, Yi, distilled Llamas. GGUF
// files of Mistral go by this name too and do not state a window: those of version 0.1, the one
// release with a window, are computed with full attention, as llama.cpp does.
constinit const Family kLlama = {
    .name = "llama",
    .classes = kClasses,
    .model_types = kNames,
    .gguf = kNames,
    .size_defaults = kDefaults,
    .tensors = kLlamaTensors,
    .ignored_suffixes = kInverseFrequencies,
    .gguf_interleaved_rope = true,
    .attention_bias = AttentionBias::kByKey,
    .mlp_bias = true,
};

}  // namespace baton::checkpoint
