#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"};
constexpr std::string_view kModelTypes[] = {"gemma3_text", "gemma3"};
constexpr std::string_view kGguf[] = {"gemma3"};

// Published configs of the models that see images leave most of the text model out.
constexpr SizeDefault kDefaults[] = {
    {&ModelMetadata::hidden_size, 2304},  {&ModelMetadata::num_layers, 26},
    {&ModelMetadata::num_heads, 8},       {&ModelMetadata::num_kv_heads, 4},
    {&ModelMetadata::head_dim, 256},      {&ModelMetadata::intermediate_size, 9216},
    {&ModelMetadata::vocab_size, 262208}, {&ModelMetadata::max_context, 131072}};

constexpr FixedSetting kFixed[] = {{"use_bidirectional_attention", "false"}};

constexpr std::span<const TensorRule> kTensors[] = {kEmbeddingAndHead, kSandwichNorms, kAttention,
                                                    kHeadNorms, kGatedMlp};

}  // namespace

// The text part only: images are not read.
constinit const Family kGemma3 = {
    .name = "gemma3",
    .classes = kClasses,
    .model_types = kModelTypes,
    .gguf = kGguf,
    .size_defaults = kDefaults,
    .fixed = kFixed,
    .tensors = kTensors,
    .ignored_prefixes = kVisionPrefixes,
    .prefixes = kTextModelPrefixes,
    .text_config = "text_config",
    .attention_bias = AttentionBias::kByKey,
    .windows = {.layers = WindowedLayers::kPattern, .window = 4096, .period = 6},
    .arithmetic = {.tied_embeddings = true,
                   .rope_theta = 1000000.0,
                   .local_rope_theta = 10000.0,
                   .context_scaled = false,
                   .activation_key = "hidden_activation",
                   .activation = Activation::kGeluTanh,
                   .qk_norm = true,
                   .post_norms = true,
                   .scaled_embeddings = true,
                   .norm_offset = 1.0f,
                   .query_scale = true,
                   .query_scalar = 256,
                   .gguf_query_scale_layers = 62,
                   .softcaps = true},
};

}  // namespace baton::checkpoint
