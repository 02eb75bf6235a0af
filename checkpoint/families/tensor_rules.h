#pragma once
#include <span>
#include <string_view>

#include "checkpoint/family.h"

namespace baton::checkpoint {

// Groups of tensors that families share. A family's `tensors` lists the groups it has.

// clang-format off
inline constexpr TensorRule kEmbeddingAndHead[] = {
    {"token_embedding.weight", "model.embed_tokens.weight", "token_embd.weight", Dim::kVocab, Dim::kHidden},
    {"output_norm.weight", "model.norm.weight", "output_norm.weight", Dim::kHidden, Dim::kOne},
    {"output.weight", "lm_head.weight", "output.weight", Dim::kVocab, Dim::kHidden, Presence::kUntied},
};

// The norms before attention and before the MLP.
inline constexpr TensorRule kPreNorms[] = {
    {"layers.N.attention_norm.weight", "model.layers.N.input_layernorm.weight", "blk.N.attn_norm.weight", Dim::kHidden, Dim::kOne},
    {"layers.N.mlp_norm.weight", "model.layers.N.post_attention_layernorm.weight", "blk.N.ffn_norm.weight", Dim::kHidden, Dim::kOne},
};

// Norms on both sides of attention and MLP.
inline constexpr TensorRule kSandwichNorms[] = {
    {"layers.N.attention_norm.weight", "model.layers.N.input_layernorm.weight", "blk.N.attn_norm.weight", Dim::kHidden, Dim::kOne},
    {"layers.N.attention_post_norm.weight", "model.layers.N.post_attention_layernorm.weight", "blk.N.post_attention_norm.weight", Dim::kHidden, Dim::kOne, Presence::kPostNorms},
    {"layers.N.mlp_norm.weight", "model.layers.N.pre_feedforward_layernorm.weight", "blk.N.ffn_norm.weight", Dim::kHidden, Dim::kOne},
    {"layers.N.mlp_post_norm.weight", "model.layers.N.post_feedforward_layernorm.weight", "blk.N.post_ffw_norm.weight", Dim::kHidden, Dim::kOne, Presence::kPostNorms},
};

inline constexpr TensorRule kAttention[] = {
    {"layers.N.q.weight", "model.layers.N.self_attn.q_proj.weight", "blk.N.attn_q.weight", Dim::kQuery, Dim::kHidden},
    {"layers.N.k.weight", "model.layers.N.self_attn.k_proj.weight", "blk.N.attn_k.weight", Dim::kKeyValue, Dim::kHidden},
    {"layers.N.v.weight", "model.layers.N.self_attn.v_proj.weight", "blk.N.attn_v.weight", Dim::kKeyValue, Dim::kHidden},
    {"layers.N.o.weight", "model.layers.N.self_attn.o_proj.weight", "blk.N.attn_output.weight", Dim::kHidden, Dim::kQuery},
    {"layers.N.q.bias", "model.layers.N.self_attn.q_proj.bias", "blk.N.attn_q.bias", Dim::kQuery, Dim::kOne, Presence::kAttentionBias},
    {"layers.N.k.bias", "model.layers.N.self_attn.k_proj.bias", "blk.N.attn_k.bias", Dim::kKeyValue, Dim::kOne, Presence::kAttentionBias},
    {"layers.N.v.bias", "model.layers.N.self_attn.v_proj.bias", "blk.N.attn_v.bias", Dim::kKeyValue, Dim::kOne, Presence::kAttentionBias},
    {"layers.N.o.bias", "model.layers.N.self_attn.o_proj.bias", "blk.N.attn_output.bias", Dim::kHidden, Dim::kOne, Presence::kOutputBias},
};

inline constexpr TensorRule kHeadNorms[] = {
    {"layers.N.q_norm.weight", "model.layers.N.self_attn.q_norm.weight", "blk.N.attn_q_norm.weight", Dim::kHead, Dim::kOne, Presence::kQkNorm},
    {"layers.N.k_norm.weight", "model.layers.N.self_attn.k_norm.weight", "blk.N.attn_k_norm.weight", Dim::kHead, Dim::kOne, Presence::kQkNorm},
};

inline constexpr TensorRule kGatedMlp[] = {
    {"layers.N.gate.weight", "model.layers.N.mlp.gate_proj.weight", "blk.N.ffn_gate.weight", Dim::kIntermediate, Dim::kHidden},
    {"layers.N.up.weight", "model.layers.N.mlp.up_proj.weight", "blk.N.ffn_up.weight", Dim::kIntermediate, Dim::kHidden},
    {"layers.N.down.weight", "model.layers.N.mlp.down_proj.weight", "blk.N.ffn_down.weight", Dim::kHidden, Dim::kIntermediate},
    {"layers.N.gate.bias", "model.layers.N.mlp.gate_proj.bias", "blk.N.ffn_gate.bias", Dim::kIntermediate, Dim::kOne, Presence::kMlpBias},
    {"layers.N.up.bias", "model.layers.N.mlp.up_proj.bias", "blk.N.ffn_up.bias", Dim::kIntermediate, Dim::kOne, Presence::kMlpBias},
    {"layers.N.down.bias", "model.layers.N.mlp.down_proj.bias", "blk.N.ffn_down.bias", Dim::kHidden, Dim::kOne, Presence::kMlpBias},
};
// clang-format on

// The layers of Llama and its many relatives.
inline constexpr std::span<const TensorRule> kLlamaTensors[] = {kEmbeddingAndHead, kPreNorms,
                                                                kAttention, kGatedMlp};

// Tables of inverse frequencies that old versions of transformers saved.
inline constexpr std::string_view kInverseFrequencies[] = {".rotary_emb.inv_freq"};

// A text model inside one that sees images: its names, in the order in which they are tried, and
// those of the rest.
inline constexpr NamePrefix kTextModelPrefixes[] = {
    {"language_model.model.", "model."},
    {"language_model.lm_head.", "lm_head."},
    {"model.language_model.", "model."},
};
inline constexpr std::string_view kVisionPrefixes[] = {"vision_tower.", "multi_modal_projector.",
                                                       "model.vision_tower.",
                                                       "model.multi_modal_projector."};

}  // namespace baton::checkpoint
