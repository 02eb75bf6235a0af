// Configs as they are published on the Hugging Face Hub, without the keys that have no bearing on
// the model's arithmetic, and what is read from them. Tables of longrope are cut to their ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/huggingface_config.h"
#include "tests/support/metadata_text.h"

namespace baton::checkpoint {
namespace {

using testing::MetadataText;

// A JSON list of `count` numbers that begins with `first`.
std::string Factors(const std::string& first, int count) {
  std::string list = "[" + first;
  for (int i = 1; i < count; ++i) absl::StrAppend(&list, ", ", i + 1);
  return list + "]";
}

// "1110" and so on for 36 layers, as a JSON list.
std::string NoRopeLayers() {
  std::string list = "[";
  for (int layer = 0; layer < 36; ++layer) {
    absl::StrAppend(&list, layer == 0 ? "" : ", ", layer % 4 == 3 ? 0 : 1);
  }
  return list + "]";
}

struct Published {
  std::string name;
  std::string config;
  std::string text;  // MetadataText
};

void PrintTo(const Published& published, std::ostream* out) { *out << published.name; }

const Published kPublished[] = {
    {"Llama_2_7b", R"({"architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
      "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "tie_word_embeddings": false, "torch_dtype": "float16", "vocab_size": 32000})",
     "llama: 32 layers of 4096, 32/32 heads of 128, mlp 11008 silu, vocabulary 32000, "
     "context 4096\n"
     "eps 1e-05, rope 10000 of 128"},
    {"Llama_3_1_8B", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
      "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128256})",
     "llama: 32 layers of 4096, 32/8 heads of 128, mlp 14336 silu, vocabulary 128256, "
     "context 131072\n"
     "eps 1e-05, rope 500000 of 128 llama3 8 from 8192 low 1 high 4"},
    {"Llama_3_2_1B", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
      "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32,
      "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
      "tie_word_embeddings": true, "vocab_size": 128256})",
     "llama: 16 layers of 2048, 32/8 heads of 64, mlp 8192 silu, vocabulary 128256 tied, "
     "context 131072\n"
     "eps 1e-05, rope 500000 of 64 llama3 32 from 8192 low 1 high 4"},
    {"SmolLM2_135M", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536, "is_llama_config": true,
      "max_position_embeddings": 8192, "mlp_bias": false, "num_attention_heads": 9,
      "num_hidden_layers": 30, "num_key_value_heads": 3, "rms_norm_eps": 1e-05,
      "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
      "tie_word_embeddings": true, "vocab_size": 49152})",
     "llama: 30 layers of 576, 9/3 heads of 64, mlp 1536 silu, vocabulary 49152 tied, "
     "context 8192\n"
     "eps 1e-05, rope 100000 of 64"},
    {"SmolLM3_3B",
     absl::StrCat(R"({"architectures": ["SmolLM3ForCausalLM"],
      "attention_bias": false, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 11008, "max_position_embeddings": 65536, "max_window_layers": 28,
      "mlp_bias": false, "model_type": "smollm3", "no_rope_layer_interval": 4, "no_rope_layers": )",
                  NoRopeLayers(), R"(, "num_attention_heads": 16, "num_hidden_layers": 36,
      "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 5000000.0, "sliding_window": null, "use_sliding_window": false,
      "vocab_size": 128256})"),
     "smollm3: 36 layers of 2048, 16/4 heads of 128, mlp 11008 silu, vocabulary 128256 tied, "
     "context 65536\n"
     "eps 1e-06, rope 5e+06 of 128\n"
     "no rope in 000100010001000100010001000100010001"},
    {"TinyLlama_1_1B", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5632,
      "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 22,
      "num_key_value_heads": 4, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "vocab_size": 32000})",
     "llama: 22 layers of 2048, 32/4 heads of 64, mlp 5632 silu, vocabulary 32000, context 2048\n"
     "eps 1e-05, rope 10000 of 64"},
    {"Yi_6B", R"({"architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 4,
      "rms_norm_eps": 1e-05, "rope_theta": 5000000.0, "tie_word_embeddings": false,
      "vocab_size": 64000})",
     "llama: 32 layers of 4096, 32/4 heads of 128, mlp 11008 silu, vocabulary 64000, "
     "context 4096\n"
     "eps 1e-05, rope 5e+06 of 128"},
    {"Mistral_7B_v0_1", R"({"architectures": ["MistralForCausalLM"], "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
      "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 32000})",
     "mistral: 32 layers of 4096, 32/8 heads of 128, mlp 14336 silu, vocabulary 32000, "
     "context 32768\n"
     "eps 1e-05, rope 10000 of 128\n"
     "window 4096 in 11111111111111111111111111111111"},
    {"Mistral_7B_v0_3", R"({"architectures": ["MistralForCausalLM"], "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
      "tie_word_embeddings": false, "vocab_size": 32768})",
     "mistral: 32 layers of 4096, 32/8 heads of 128, mlp 14336 silu, vocabulary 32768, "
     "context 32768\n"
     "eps 1e-05, rope 1e+06 of 128"},
    {"Mistral_Nemo", R"({"architectures": ["MistralForCausalLM"], "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 14336,
      "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 40,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
      "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 131072})",
     "mistral: 40 layers of 5120, 32/8 heads of 128, mlp 14336 silu, vocabulary 131072, "
     "context 131072\n"
     "eps 1e-05, rope 1e+06 of 128"},
    // The text part of a model that sees images.
    {"Mistral_Small_3_1", R"({"architectures": ["Mistral3ForConditionalGeneration"],
      "image_token_index": 10, "model_type": "mistral3", "text_config": {"attention_dropout": 0.0,
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 32768,
      "max_position_embeddings": 131072, "model_type": "mistral", "num_attention_heads": 32,
      "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000000.0, "sliding_window": null, "vocab_size": 131072},
      "vision_config": {"model_type": "pixtral"}})",
     "mistral: 40 layers of 5120, 32/8 heads of 128, mlp 32768 silu, vocabulary 131072, "
     "context 131072\n"
     "eps 1e-05, rope 1e+09 of 128"},
    {"Mixtral_8x7B", R"({"architectures": ["MixtralForCausalLM"], "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
      "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
      "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
      "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
      "vocab_size": 32000})",
     "mixtral: 32 layers of 4096, 32/8 heads of 128, mlp 14336 silu, vocabulary 32000, "
     "context 32768\n"
     "eps 1e-05, rope 1e+06 of 128\n"
     "2 of 8 experts of 14336"},
    {"Qwen2_5_7B", R"({"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
      "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 32768,
      "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
      "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
      "use_sliding_window": false, "vocab_size": 152064})",
     "qwen2: 28 layers of 3584, 28/4 heads of 128, mlp 18944 silu, vocabulary 152064, "
     "context 32768\n"
     "eps 1e-06, qkv bias, rope 1e+06 of 128"},
    // With what its page says to add for long texts.
    {"Qwen2_5_7B_yarn", R"({"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
      "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 32768,
      "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
      "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "rope_scaling": {"factor": 4.0,
      "original_max_position_embeddings": 32768, "type": "yarn"}, "vocab_size": 152064})",
     "qwen2: 28 layers of 3584, 28/4 heads of 128, mlp 18944 silu, vocabulary 152064, "
     "context 131072\n"
     "eps 1e-06, qkv bias, rope 1e+06 of 128 yarn 4 from 32768 beta 1..32"},
    {"Qwen3_8B", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12288,
      "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
      "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
      "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})",
     "qwen3: 36 layers of 4096, 32/8 heads of 128, mlp 12288 silu, vocabulary 151936, "
     "context 40960\n"
     "eps 1e-06, qk norm, rope 1e+06 of 128"},
    {"Qwen3_30B_A3B", R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
      "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
      "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
      "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
      "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
      "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})",
     "qwen3_moe: 48 layers of 2048, 32/4 heads of 128, mlp 6144 silu, vocabulary 151936, "
     "context 40960\n"
     "eps 1e-06, qk norm, rope 1e+06 of 128\n"
     "8 of 128 experts of 768"},
    {"Phi_3_mini_4k", R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false,
      "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192,
      "max_position_embeddings": 4096, "model_type": "phi3", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32,
      "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": false,
      "vocab_size": 32064})",
     "phi3: 32 layers of 3072, 32/32 heads of 96, mlp 8192 silu, vocabulary 32064, context 4096\n"
     "eps 1e-05, rope 10000 of 96\n"
     "window 2047 in 11111111111111111111111111111111"},
    {"Phi_3_mini_128k",
     absl::StrCat(R"({"architectures": ["Phi3ForCausalLM"],
      "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192,
      "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05,
      "rope_scaling": {"type": "su", "long_factor": )",
                  Factors("1.07", 48), R"(, "short_factor": )", Factors("1.0", 48),
                  R"(}, "rope_theta": 10000.0,
      "sliding_window": 262144, "tie_word_embeddings": false, "vocab_size": 32064})"),
     "phi3: 32 layers of 3072, 32/32 heads of 96, mlp 8192 silu, vocabulary 32064, "
     "context 131072\n"
     "eps 1e-05, rope 10000 of 96 longrope 32 from 4096 short 1..48 of 48 long 1.07..48 of 48"},
    {"Phi_4", R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false,
      "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 17920,
      "max_position_embeddings": 16384, "num_attention_heads": 40, "num_hidden_layers": 40,
      "num_key_value_heads": 10, "original_max_position_embeddings": 16384,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 250000, "sliding_window": null,
      "tie_word_embeddings": false, "vocab_size": 100352})",
     "phi3: 40 layers of 5120, 40/10 heads of 128, mlp 17920 silu, vocabulary 100352, "
     "context 16384\n"
     "eps 1e-05, rope 250000 of 128"},
    {"Phi_4_mini",
     absl::StrCat(
         R"({"architectures": ["Phi3ForCausalLM"], "full_attn_mod": 1,
      "attention_bias": false, "hidden_act": "silu", "hidden_size": 3072, "interpolate_factor": 1,
      "intermediate_size": 8192, "lm_head_bias": false, "max_position_embeddings": 131072,
      "mlp_bias": false, "num_attention_heads": 24, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
      "partial_rotary_factor": 0.75, "rms_norm_eps": 1e-05, "rope_scaling": {"type": "longrope",
      "long_factor": )",
         Factors("1", 48), R"(, "short_factor": )", Factors("1.0", 48),
         R"(}, "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true,
      "vocab_size": 200064})"),
     "phi3: 32 layers of 3072, 24/8 heads of 128, mlp 8192 silu, vocabulary 200064 tied, "
     "context 131072\n"
     "eps 1e-05, rope 10000 of 96 longrope 32 from 4096 short 1..48 of 48 long 1..48 of 48"},
    {"gemma_2b", R"({"architectures": ["GemmaForCausalLM"], "attention_bias": false,
      "head_dim": 256, "hidden_act": "gelu", "hidden_size": 2048, "intermediate_size": 16384,
      "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 18,
      "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 10000.0, "vocab_size": 256000})",
     "gemma: 18 layers of 2048, 8/1 heads of 256, mlp 16384 gelu-tanh, vocabulary 256000 tied, "
     "context 8192\n"
     "eps 1e-06, norm offset 1, embedding scale 45.2548, rope 10000 of 256"},
    {"gemma_2_9b", R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
      "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid",
      "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584, "intermediate_size": 14336,
      "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42,
      "num_key_value_heads": 8, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_theta": 10000.0, "sliding_window": 4096, "sliding_window_size": 4096,
      "vocab_size": 256000})",
     "gemma2: 42 layers of 3584, 16/8 heads of 256, mlp 14336 gelu-tanh, vocabulary 256000 tied, "
     "context 8192\n"
     "eps 1e-06, norm offset 1, post norms, embedding scale 59.8665, attention scale 0.0625, "
     "caps 50 30, rope 10000 of 256\n"
     "window 4096 in 101010101010101010101010101010101010101010"},
    {"gemma_2_27b", R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
      "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "head_dim": 128,
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 4608, "intermediate_size": 36864,
      "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 46,
      "num_key_value_heads": 16, "query_pre_attn_scalar": 144, "rms_norm_eps": 1e-06,
      "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000})",
     "gemma2: 46 layers of 4608, 32/16 heads of 128, mlp 36864 gelu-tanh, vocabulary 256000 tied, "
     "context 8192\n"
     "eps 1e-06, norm offset 1, post norms, embedding scale 67.8822, attention scale 0.0833333, "
     "caps 50 30, rope 10000 of 128\n"
     "window 4096 in 1010101010101010101010101010101010101010101010"},
    {"gemma_3_1b", R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
      "attn_logit_softcapping": null, "cache_implementation": "hybrid",
      "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 1152, "intermediate_size": 6912, "max_position_embeddings": 32768,
      "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26,
      "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
      "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144})",
     "gemma3: 26 layers of 1152, 4/1 heads of 256, mlp 6912 gelu-tanh, vocabulary 262144 tied, "
     "context 32768\n"
     "eps 1e-06, norm offset 1, qk norm, post norms, embedding scale 33.9411, "
     "attention scale 0.0625, rope 1e+06 of 256\n"
     "window 512 in 11111011111011111011111011, rope there 10000 of 256"},
    // The text part of a model that sees images; what is left out is the class's default.
    {"gemma_3_4b", R"({"architectures": ["Gemma3ForConditionalGeneration"],
      "boi_token_index": 255999, "eos_token_id": [1, 106], "model_type": "gemma3",
      "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
      "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0,
      "rope_type": "linear"}, "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}})",
     "gemma3: 34 layers of 2560, 8/4 heads of 256, mlp 10240 gelu-tanh, vocabulary 262208 tied, "
     "context 131072\n"
     "eps 1e-06, norm offset 1, qk norm, post norms, embedding scale 50.5964, "
     "attention scale 0.0625, rope 1e+06 of 256 linear 8\n"
     "window 1024 in 1111101111101111101111101111101111, rope there 10000 of 256"},
    // As transformers 5 writes it.
    {"gemma_3_1b_version_5", R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
      "dtype": "bfloat16", "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 1152, "intermediate_size": 6912, "layer_types": ["sliding_attention",
      "sliding_attention", "full_attention"], "max_position_embeddings": 32768,
      "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 3,
      "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_parameters": {"full_attention": {"rope_theta": 1000000, "rope_type": "linear",
      "factor": 8.0}, "sliding_attention": {"rope_theta": 10000, "rope_type": "default"}},
      "sliding_window": 512, "tie_word_embeddings": true, "use_bidirectional_attention": false,
      "vocab_size": 262144})",
     "gemma3: 3 layers of 1152, 4/1 heads of 256, mlp 6912 gelu-tanh, vocabulary 262144 tied, "
     "context 32768\n"
     "eps 1e-06, norm offset 1, qk norm, post norms, embedding scale 33.9411, "
     "attention scale 0.0625, rope 1e+06 of 256 linear 8\n"
     "window 512 in 110, rope there 10000 of 256"},
};

class PublishedConfigTest : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedConfigTest, MeansWhatItsMakersMeant) {
  const auto object = JsonObject::Parse(GetParam().config);
  ASSERT_TRUE(object.ok()) << object.status();

  const auto config = ReadHuggingFaceConfig(*object);

  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(MetadataText(config->metadata), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(Every, PublishedConfigTest, ::testing::ValuesIn(kPublished),
                         [](const auto& published) { return published.param.name; });

}  // namespace
}  // namespace baton::checkpoint
