#include "checkpoint/families/families.h"
#include "checkpoint/families/tensor_rules.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"Phi3ForCausalLM"};
constexpr std::string_view kNames[] = {"phi3"};

constexpr SizeDefault kDefaults[] = {{&ModelMetadata::max_context, 4096}};

// clang-format off
constexpr TensorRule kFused[] = {
    {"layers.N.q.weight", "model.layers.N.self_attn.qkv_proj.weight", "blk.N.attn_qkv.weight", Dim::kQuery, Dim::kHidden},
    {"layers.N.k.weight", "model.layers.N.self_attn.qkv_proj.weight", "blk.N.attn_qkv.weight", Dim::kKeyValue, Dim::kHidden},
    {"layers.N.v.weight", "model.layers.N.self_attn.qkv_proj.weight", "blk.N.attn_qkv.weight", Dim::kKeyValue, Dim::kHidden},
    {"layers.N.o.weight", "model.layers.N.self_attn.o_proj.weight", "blk.N.attn_output.weight", Dim::kHidden, Dim::kQuery},
    {"layers.N.gate.weight", "model.layers.N.mlp.gate_up_proj.weight", "blk.N.ffn_up.weight", Dim::kIntermediate, Dim::kHidden},
    {"layers.N.up.weight", "model.layers.N.mlp.gate_up_proj.weight", "blk.N.ffn_up.weight", Dim::kIntermediate, Dim::kHidden},
    {"layers.N.down.weight", "model.layers.N.mlp.down_proj.weight", "blk.N.ffn_down.weight", Dim::kHidden, Dim::kIntermediate},
};
// clang-format on
constexpr std::span<const TensorRule> kTensors[] = {kEmbeddingAndHead, kPreNorms, kFused};

}  // namespace

// Phi 3, 3.5 and 4, mini to medium: a Llama whose q, k and v, and gate and up, are one matrix each.
constinit const Family kPhi3 = {
    .name = "phi3",
    .classes = kClasses,
    .model_types = kNames,
    .gguf = kNames,
    .size_defaults = kDefaults,
    .tensors = kTensors,
    .ignored_suffixes = kInverseFrequencies,
    .windows = {.layers = WindowedLayers::kAll, .layer_types = false},
    .arithmetic = {.rms_norm_eps = 1e-5, .original_context = 4096},
};

}  // namespace baton::checkpoint
