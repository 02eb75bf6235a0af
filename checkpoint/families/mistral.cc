#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"MistralForCausalLM"};
constexpr std::string_view kModelTypes[] = {"mistral"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::num_kv_heads, 8},
                                     {&ModelMetadata::max_context, 131072}};

}  // namespace

// A Llama with a window in every layer, where "sliding_window" is not null. In GGUF it is "llama".
constinit const Family kMistral = {
    .name = "mistral",
    .classes = kClasses,
    .model_types = kModelTypes,
    .gguf = {},
    .size_defaults = kDefaults,
    .tensors = kLlamaTensors,
    .windows = {.layers = WindowedLayers::kAll, .window = 4096, .layer_types = false},
};

}  // namespace baton::checkpoint
