#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"Qwen3MoeForCausalLM"};
constexpr std::string_view kModelTypes[] = {"qwen3_moe"};
constexpr std::string_view kGguf[] = {"qwen3moe"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::num_kv_heads, 4},
                                     {&ModelMetadata::max_context, 32768}};

// Some layers may have a plain MLP; no release does.
constexpr FixedSetting kFixed[] = {{"decoder_sparse_step", "1"}, {"mlp_only_layers", "[]"}};

// clang-format off
constexpr TensorRule kExperts[] = {
    {"layers.N.router.weight", "model.layers.N.mlp.gate.weight", "blk.N.ffn_gate_inp.weight", Dim::kExperts, Dim::kHidden},
    {"layers.N.experts.E.gate.weight", "model.layers.N.mlp.experts.E.gate_proj.weight", "blk.N.ffn_gate_exps.weight", Dim::kExpertIntermediate, Dim::kHidden},
    {"layers.N.experts.E.up.weight", "model.layers.N.mlp.experts.E.up_proj.weight", "blk.N.ffn_up_exps.weight", Dim::kExpertIntermediate, Dim::kHidden},
    {"layers.N.experts.E.down.weight", "model.layers.N.mlp.experts.E.down_proj.weight", "blk.N.ffn_down_exps.weight", Dim::kHidden, Dim::kExpertIntermediate},
};
// clang-format on
constexpr std::span<const TensorRule> kTensors[] = {kEmbeddingAndHead, kPreNorms, kAttention,
                                                    kHeadNorms, kExperts};

}  // namespace

constinit const Family kQwen3Moe = {
    .name = "qwen3_moe",
    .classes = kClasses,
    .model_types = kModelTypes,
    .gguf = kGguf,
    .size_defaults = kDefaults,
    .fixed = kFixed,
    .tensors = kTensors,
    .attention_bias = AttentionBias::kByKey,
    .windows = {.layers = WindowedLayers::kAll,
                .window = 4096,
                .switched = true,
                .layer_types = false},
    .experts = {.count_key = "num_experts",
                .size_key = "moe_intermediate_size",
                .count = 128,
                .per_token = 8,
                .size = 768,
                .normalize_by_key = true},
    .arithmetic = {.qk_norm = true},
};

}  // namespace baton::checkpoint
