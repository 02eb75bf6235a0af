#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"GemmaForCausalLM"};
constexpr std::string_view kNames[] = {"gemma"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::num_kv_heads, 16},
                                     {&ModelMetadata::head_dim, 256},
                                     {&ModelMetadata::max_context, 8192}};

constexpr FixedSetting kFixed[] = {{"use_bidirectional_attention", "false"}};

}  // namespace

// "hidden_act" is "gelu" in early files, which transformers reads as the tanh form the model was
// trained with; "hidden_activation" is what counts.
constinit const Family kGemma = {
    .name = "gemma",
    .classes = kClasses,
    .model_types = kNames,
    .gguf = kNames,
    .size_defaults = kDefaults,
    .fixed = kFixed,
    .tensors = kLlamaTensors,
    .attention_bias = AttentionBias::kByKey,
    .arithmetic = {.tied_embeddings = true,
                   .activation_key = "hidden_activation",
                   .activation = Activation::kGeluTanh,
                   .scaled_embeddings = true,
                   .norm_offset = 1.0f},
};

}  // namespace baton::checkpoint
