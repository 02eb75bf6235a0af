#include "checkpoint/families/llama.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kClasses[] = {"LlamaForCausalLM"};
constexpr std::string_view kGguf[] = {"llama"};

constexpr FixedSetting kFixed[] = {
    {"hidden_act", "\"silu\""},
    {"mlp_bias", "false"},
    {"quantization_config", "null"},
};

// Tables of inverse frequencies that old versions of transformers saved.
constexpr std::string_view kIgnored[] = {".rotary_emb.inv_freq"};

constexpr Presence kUntied = Presence::kUntied;
constexpr Presence kBias = Presence::kAttentionBias;

// clang-format off
constexpr TensorRule kTensors[] = {
    {"token_embedding.weight", "model.embed_tokens.weight", "token_embd.weight", Dim::kVocab, Dim::kHidden},
    {"output_norm.weight", "model.norm.weight", "output_norm.weight", Dim::kHidden, Dim::kOne},
    {"output.weight", "lm_head.weight", "output.weight", Dim::kVocab, Dim::kHidden, kUntied},
    {"layers.N.attention_norm.weight", "model.layers.N.input_layernorm.weight", "blk.N.attn_norm.weight", Dim::kHidden, Dim::kOne},
    {"layers.N.q.weight", "model.layers.N.self_attn.q_proj.weight", "blk.N.attn_q.weight", Dim::kQuery, Dim::kHidden},
    {"layers.N.k.weight", "model.layers.N.self_attn.k_proj.weight", "blk.N.attn_k.weight", Dim::kKeyValue, Dim::kHidden},
    {"layers.N.v.weight", "model.layers.N.self_attn.v_proj.weight", "blk.N.attn_v.weight", Dim::kKeyValue, Dim::kHidden},
    {"layers.N.o.weight", "model.layers.N.self_attn.o_proj.weight", "blk.N.attn_output.weight", Dim::kHidden, Dim::kQuery},
    {"layers.N.q.bias", "model.layers.N.self_attn.q_proj.bias", "blk.N.attn_q.bias", Dim::kQuery, Dim::kOne, kBias},
    {"layers.N.k.bias", "model.layers.N.self_attn.k_proj.bias", "blk.N.attn_k.bias", Dim::kKeyValue, Dim::kOne, kBias},
    {"layers.N.v.bias", "model.layers.N.self_attn.v_proj.bias", "blk.N.attn_v.bias", Dim::kKeyValue, Dim::kOne, kBias},
    {"layers.N.o.bias", "model.layers.N.self_attn.o_proj.bias", "blk.N.attn_output.bias", Dim::kHidden, Dim::kOne, kBias},
    {"layers.N.mlp_norm.weight", "model.layers.N.post_attention_layernorm.weight", "blk.N.ffn_norm.weight", Dim::kHidden, Dim::kOne},
    {"layers.N.gate.weight", "model.layers.N.mlp.gate_proj.weight", "blk.N.ffn_gate.weight", Dim::kIntermediate, Dim::kHidden},
    {"layers.N.up.weight", "model.layers.N.mlp.up_proj.weight", "blk.N.ffn_up.weight", Dim::kIntermediate, Dim::kHidden},
    {"layers.N.down.weight", "model.layers.N.mlp.down_proj.weight", "blk.N.ffn_down.weight", Dim::kHidden, Dim::kIntermediate},
};
// clang-format on

}  // namespace

constinit const Family kLlama = {
    .name = "llama",
    .classes = kClasses,
    .gguf = kGguf,
    .sizes = kStandardSizes,
    .fixed = kFixed,
    .tensors = kTensors,
    .ignored_suffixes = kIgnored,
    .gguf_interleaved_rope = true,
};

}  // namespace baton::checkpoint
