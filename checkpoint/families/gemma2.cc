#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"Gemma2ForCausalLM"};
constexpr std::string_view kNames[] = {"gemma2"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::num_kv_heads, 4},
                                     {&ModelMetadata::head_dim, 256},
                                     {&ModelMetadata::max_context, 8192}};

constexpr FixedSetting kFixed[] = {{"use_bidirectional_attention", "false"}};

constexpr std::span<const TensorRule> kTensors[] = {kEmbeddingAndHead, kSandwichNorms, kAttention,
                                                    kGatedMlp};

}  // namespace

constinit const Family kGemma2 = {
    .name = "gemma2",
    .classes = kClasses,
    .model_types = kNames,
    .gguf = kNames,
    .size_defaults = kDefaults,
    .fixed = kFixed,
    .tensors = kTensors,
    .attention_bias = AttentionBias::kByKey,
    .windows = {.layers = WindowedLayers::kPattern,
                .window = 4096,
                .gguf_window = 4096,
                .period = 2},
    .arithmetic = {.tied_embeddings = true,
                   .activation_key = "hidden_activation",
                   .activation = Activation::kGeluTanh,
                   .post_norms = true,
                   .scaled_embeddings = true,
                   .norm_offset = 1.0f,
                   .query_scale = true,
                   .query_scalar = 256,
                   .gguf_query_scale_layers = 46,
                   .softcaps = true,
                   .attention_softcap = 50.0f,
                   .logit_softcap = 30.0f},
};

}  // namespace baton::checkpoint
