#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"SmolLM3ForCausalLM"};
constexpr std::string_view kNames[] = {"smollm3"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::num_kv_heads, 4},
                                     {&ModelMetadata::max_context, 32768}};

}  // namespace

// A Llama in which every fourth layer is not rotated.
constinit const Family kSmolLm3 = {
    .name = "smollm3",
    .classes = kClasses,
    .model_types = kNames,
    .gguf = kNames,
    .size_defaults = kDefaults,
    .tensors = kLlamaTensors,
    .gguf_interleaved_rope = true,
    .attention_bias = AttentionBias::kByKey,
    .mlp_bias = true,
    .windows = {.layers = WindowedLayers::kUnrotated, .switched = true},
    .arithmetic = {.tied_embeddings = true, .rope_theta = 2000000.0, .no_rope_period = 4},
};

}  // namespace baton::checkpoint
