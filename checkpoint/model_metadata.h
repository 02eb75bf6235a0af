#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace baton::checkpoint {

enum class RopeScaling : std::uint8_t { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

// Rotary position embedding as the model's config states it.
struct RopeMetadata {
  float theta = 10000.0f;
  int dim = 0;  // rotated dimensions per head, <= head_dim
  // Which dimensions form a pair: (2i, 2i+1) when interleaved (GGUF llama), (i, i+dim/2) otherwise
  // (Hugging Face).
  bool interleaved = false;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;
  // Positions the model was first trained for (kLlama3, kYarn, kDynamic, kLongRope).
  int original_max_position = 0;
  // Multiplies cos and sin (kYarn, kLongRope); 0: what the scaling's own formula gives.
  float attention_factor = 0.0f;
  // kLlama3 only.
  float low_frequency_factor = 1.0f;
  float high_frequency_factor = 4.0f;
  // kYarn only (arXiv:2309.00071). mscale and mscale_all_dim are DeepSeek's; 0: not stated.
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  bool truncate = true;  // the correction range is rounded outwards to whole dimensions
  float mscale = 0.0f;
  float mscale_all_dim = 0.0f;
  // kLongRope only, [dim / 2]: divide the frequencies of texts up to original_max_position, and of
  // longer ones.
  std::vector<float> short_factors;
  std::vector<float> long_factors;
  // Divides the frequency of pair i, after any scaling; empty: all ones. GGUF files of Llama 3.1
  // and later carry their scaling this way (tensor rope_freqs.weight).
  std::vector<float> frequency_factors;
};

// The gate's nonlinearity in the MLP.
enum class Activation : std::uint8_t {
  kSilu,
  kGeluTanh,  // 0.5 z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3)))
  kGelu,      // 0.5 z (1 + erf(z / sqrt(2)))
};

// Hyperparameters under one set of names, whatever the file format calls them. Checked on reading:
// positive, bounded, consistent.
struct ModelMetadata {
  std::string architecture;  // "llama"
  std::string name;          // general.name, or the directory's name
  std::string format;        // "gguf" or "huggingface"
  int hidden_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int intermediate_size = 0;
  int vocab_size = 0;
  int max_context = 0;  // tokens the positions allow
  float rms_norm_eps = 1e-5f;
  // Added to the weight of every RMS norm: 1 where weights are stored as deviations from one.
  float norm_offset = 0.0f;
  bool tied_embeddings = false;
  bool attention_bias = false;  // of q, k and v
  bool output_bias = false;     // of o
  bool mlp_bias = false;        // of gate, up and down
  bool qk_norm = false;         // an RMS norm over each head of q and k, before rope
  bool post_norms = false;  // an RMS norm after attention and after the MLP, before each is added
  Activation activation = Activation::kSilu;
  float embedding_scale = 1.0f;    // multiplies embeddings
  float attention_scale = 0.0f;    // multiplies q.k; 0: 1 / sqrt(head_dim)
  float attention_softcap = 0.0f;  // score = cap * tanh(score / cap) before the mask; 0: none
  float logit_softcap = 0.0f;      // likewise of the logits
  RopeMetadata rope;
  // A row of a windowed layer sees itself and the sliding_window - 1 positions before it. 0: no
  // layer is windowed.
  int sliding_window = 0;
  std::vector<bool> windowed_layers;       // [num_layers], or empty
  std::vector<bool> no_rope_layers;        // [num_layers], or empty: every layer is rotated
  std::optional<RopeMetadata> local_rope;  // of windowed layers, where theirs differs
  // Mixture of experts; 0 experts: a plain MLP. The MLP of each expert has
  // expert_intermediate_size; the router's softmax runs over all experts, and the weights of the
  // chosen ones are divided by their sum where normalize_expert_weights.
  int num_experts = 0;
  int experts_per_token = 0;
  int expert_intermediate_size = 0;
  bool normalize_expert_weights = true;
};

}  // namespace baton::checkpoint
