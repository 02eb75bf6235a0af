#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"Qwen3ForCausalLM"};
constexpr std::string_view kNames[] = {"qwen3"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::num_kv_heads, 32},
                                     {&ModelMetadata::head_dim, 128},
                                     {&ModelMetadata::max_context, 32768}};

constexpr std::span<const TensorRule> kTensors[] = {kEmbeddingAndHead, kPreNorms, kAttention,
                                                    kHeadNorms, kGatedMlp};

}  // namespace

constinit const Family kQwen3 = {
    .name = "qwen3",
    .classes = kClasses,
    .model_types = kNames,
    .gguf = kNames,
    .size_defaults = kDefaults,
    .tensors = kTensors,
    .attention_bias = AttentionBias::kByKey,
    .windows = {.layers = WindowedLayers::kFromLayer,
                .window = 4096,
                .switched = true,
                .first_layer = 28},
    .arithmetic = {.qk_norm = true},
};

}  // namespace baton::checkpoint
