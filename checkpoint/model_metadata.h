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
  // Llama 3 scaling (kLlama3 only).
  float low_frequency_factor = 1.0f;
  float high_frequency_factor = 4.0f;
  int original_max_position = 0;
  // Divides the frequency of pair i, after any scaling; empty: all ones. GGUF files of Llama 3.1
  // and later carry their scaling this way (tensor rope_freqs.weight).
  std::vector<float> frequency_factors;
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
  bool tied_embeddings = false;
  bool attention_bias = false;
  RopeMetadata rope;
};

}  // namespace baton::checkpoint
