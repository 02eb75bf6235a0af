#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"MistralForCausalLM", "Mistral3ForConditionalGeneration"};
constexpr std::string_view kModelTypes[] = {"mistral"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::num_kv_heads, 8},
                                     {&ModelMetadata::max_context, 131072}};

// The second class also holds Ministral 3, whose attention differs.
constexpr FixedSetting kFixed[] = {{"model_type", "\"mistral\""}};

}  // namespace

// A Llama with a window in every layer, where "sliding_window" is not null. In GGUF it is "llama".
// Of Mistral Small 3.1 and later, which see images, the text part only.
constinit const Family kMistral = {
    .name = "mistral",
    .classes = kClasses,
    .model_types = kModelTypes,
    .gguf = {},
    .size_defaults = kDefaults,
    .fixed = kFixed,
    .tensors = kLlamaTensors,
    .ignored_prefixes = kVisionPrefixes,
    .prefixes = kTextModelPrefixes,
    .text_config = "text_config",
    .windows = {.layers = WindowedLayers::kAll, .window = 4096, .layer_types = false},
};

}  // namespace baton::checkpoint
