#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"Qwen2ForCausalLM"};
constexpr std::string_view kNames[] = {"qwen2"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::num_kv_heads, 32},
                                     {&ModelMetadata::max_context, 32768}};

}  // namespace

// Qwen 1.5, 2 and 2.5, and what was distilled into them: a Llama with biases on q, k and v.
constinit const Family kQwen2 = {
    .name = "qwen2",
    .classes = kClasses,
    .model_types = kNames,
    .gguf = kNames,
    .size_defaults = kDefaults,
    .tensors = kLlamaTensors,
    .ignored_suffixes = kInverseFrequencies,
    .attention_bias = AttentionBias::kAlways,
    .windows = {.layers = WindowedLayers::kFromLayer,
                .window = 4096,
                .switched = true,
                .first_layer = 28},
};

}  // namespace baton::checkpoint
