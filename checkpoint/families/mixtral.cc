#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"MixtralForCausalLM"};
constexpr std::string_view kModelTypes[] = {"mixtral"};
constexpr std::string_view kGguf[] = {"llama"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::num_kv_heads, 8},
                                     {&ModelMetadata::max_context, 131072}};

// clang-format off
constexpr TensorRule kExperts[] = {
    {"layers.N.router.weight", "model.layers.N.block_sparse_moe.gate.weight", "blk.N.ffn_gate_inp.weight", Dim::kExperts, Dim::kHidden},
    {"layers.N.experts.E.gate.weight", "model.layers.N.block_sparse_moe.experts.E.w1.weight", "blk.N.ffn_gate_exps.weight", Dim::kExpertIntermediate, Dim::kHidden, Presence::kAlways, "blk.N.ffn_gate.E.weight"},
    {"layers.N.experts.E.up.weight", "model.layers.N.block_sparse_moe.experts.E.w3.weight", "blk.N.ffn_up_exps.weight", Dim::kExpertIntermediate, Dim::kHidden, Presence::kAlways, "blk.N.ffn_up.E.weight"},
    {"layers.N.experts.E.down.weight", "model.layers.N.block_sparse_moe.experts.E.w2.weight", "blk.N.ffn_down_exps.weight", Dim::kHidden, Dim::kExpertIntermediate, Presence::kAlways, "blk.N.ffn_down.E.weight"},
};
// clang-format on
constexpr std::span<const TensorRule> kTensors[] = {kEmbeddingAndHead, kPreNorms, kAttention,
                                                    kExperts};

}  // namespace

// Mistral with experts. In GGUF it is a "llama" that has some.
constinit const Family kMixtral = {
    .name = "mixtral",
    .classes = kClasses,
    .model_types = kModelTypes,
    .gguf = kGguf,
    .size_defaults = kDefaults,
    .tensors = kTensors,
    .gguf_interleaved_rope = true,
    .windows = {.layers = WindowedLayers::kAll, .layer_types = false},
    .experts = {.count_key = "num_local_experts",
                .size_key = "intermediate_size",
                .count = 8,
                .per_token = 2},
    .arithmetic = {.rms_norm_eps = 1e-5, .rope_theta = 1000000.0},
};

}  // namespace baton::checkpoint
