#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/model_metadata.h"

namespace baton::checkpoint {

enum class FileFormat : std::uint8_t { kGguf, kHuggingFace };

// The sizes that tensor shapes are made of.
enum class Dim : std::uint8_t {
  kOne,  // as the second of two: the tensor is a vector
  kVocab,
  kHidden,
  kQuery,     // heads * head_dim
  kKeyValue,  // kv_heads * head_dim
  kHead,      // head_dim
  kIntermediate,
  kExperts,  // the number of them
  kExpertIntermediate,
};
std::int64_t DimSize(Dim dim, const ModelMetadata& metadata);

// Which models have the tensor.
enum class Presence : std::uint8_t {
  kAlways,
  kUntied,
  kAttentionBias,
  kOutputBias,
  kMlpBias,
  kQkNorm,
  kPostNorms,
};

// One tensor of the model: one per layer when the names hold ".N.", which stands for the layer's
// number, and one per layer and expert when `canonical` holds ".E." too.
//   - Consecutive rules of one file name are parts of one tensor of the file, stacked by rows in
//     the order of the rules (Phi's qkv_proj).
//   - A file name without ".E." of a tensor per expert holds all experts of a layer, stacked:
//     [experts, rows, columns].
struct TensorRule {
  std::string_view canonical;
  std::string_view huggingface;
  std::string_view gguf;
  Dim rows;     // of a vector: its length
  Dim columns;  // kOne: a vector
  Presence presence = Presence::kAlways;
  std::string_view old_gguf = {};  // where no tensor goes by `gguf`: what old converters wrote
};

// Where a whole-number hyperparameter stands. Keys of GGUF follow "<architecture>."; an empty key
// means that the format does not state it.
struct SizeKey {
  int ModelMetadata::*field;
  std::string_view huggingface;
  std::string_view gguf;
  bool required;
};

// The names most families use.
inline constexpr SizeKey kStandardSizes[] = {
    {&ModelMetadata::hidden_size, "hidden_size", "embedding_length", true},
    {&ModelMetadata::num_layers, "num_hidden_layers", "block_count", true},
    {&ModelMetadata::num_heads, "num_attention_heads", "attention.head_count", true},
    {&ModelMetadata::num_kv_heads, "num_key_value_heads", "attention.head_count_kv", false},
    {&ModelMetadata::head_dim, "head_dim", "attention.key_length", false},
    {&ModelMetadata::intermediate_size, "intermediate_size", "feed_forward_length", true},
    {&ModelMetadata::vocab_size, "vocab_size", "", true},
    {&ModelMetadata::max_context, "max_position_embeddings", "context_length", true},
};

// What config.json means by leaving a key out: the default of transformers' config class. A key
// that is there and null is not left out.
struct SizeDefault {
  int ModelMetadata::*field;
  int value;
};

// A setting of config.json that changes the arithmetic in a way the family does not describe:
// anything but absent, null or `accepted` (JSON text) is refused.
struct FixedSetting {
  std::string_view huggingface;
  std::string_view accepted;
};

// Which layers attend to a window only.
enum class WindowedLayers : std::uint8_t {
  kNone,
  kAll,
  kFromLayer,  // from "max_window_layers" on
  kPattern,    // all but every period-th
  kUnrotated,  // those without rope
};
struct WindowRule {
  WindowedLayers layers = WindowedLayers::kNone;
  int window = 0;           // when config.json leaves "sliding_window" out; 0: none
  bool switched = false;    // only where "use_sliding_window" is true
  int gguf_window = 0;      // when a GGUF file does not state one; 0: none
  int period = 0;           // kPattern, unless the file states it
  int first_layer = 0;      // kFromLayer, unless the file states it
  bool layer_types = true;  // a list "layer_types" in config.json comes before all of these
};

// Biases of q, k and v.
enum class AttentionBias : std::uint8_t {
  kNone,
  kAlways,
  kByKey,  // "attention_bias" decides, about o as well
};

// Mixtures of experts, in every layer.
struct ExpertRule {
  std::string_view count_key;  // in config.json; empty: a plain MLP
  std::string_view size_key;   // of an expert's MLP
  int count = 0;               // when the keys are left out
  int per_token = 0;
  int size = 0;
  // Whether the weights of the chosen experts are divided by their sum: stated by norm_topk_prob
  // when `normalize_by_key` (left out: false), else true.
  bool normalize_by_key = false;
};

// The numbers that files leave out, and those no file states.
struct Arithmetic {
  double rms_norm_eps = 1e-6;
  bool tied_embeddings = false;
  double rope_theta = 10000.0;
  double local_rope_theta = 0.0;  // of windowed layers; 0: rope_theta's
  bool context_scaled = true;     // by rope scaling: see ScaleContext in hyperparameters.h
  int original_context = 0;       // of longrope; 0: must be stated
  int no_rope_period = 0;         // every period-th layer is not rotated; 0: all are
  std::string_view activation_key = "hidden_act";
  Activation activation = Activation::kSilu;
  bool qk_norm = false;
  bool post_norms = false;
  bool scaled_embeddings = false;  // by sqrt(hidden_size)
  float norm_offset = 0.0f;        // of Hugging Face files; GGUF stores weights with it added
  bool query_scale = false;        // query_pre_attn_scalar ^ -0.5 instead of 1 / sqrt(head_dim)
  int query_scalar = 0;            // when the key is left out
  // GGUF does not state the scalar: models of this many layers have hidden_size / num_heads.
  int gguf_query_scale_layers = 0;
  bool softcaps = false;           // attn_logit_softcapping and final_logit_softcapping
  float attention_softcap = 0.0f;  // when the keys are left out
  float logit_softcap = 0.0f;
};

// A prefix of tensor names in Hugging Face files and what stands for it in the rules.
struct NamePrefix {
  std::string_view file;
  std::string_view rules;
};

// A model family as data: how its files name things and what they leave unsaid. Adding one is a
// file in checkpoint/families/ and a line in family.cc; reading, checking and naming follow from
// the tables.
struct Family {
  std::string_view name;                          // ModelMetadata::architecture
  std::span<const std::string_view> classes;      // "architectures" of config.json
  std::span<const std::string_view> model_types;  // "model_type", where "architectures" is missing
  std::span<const std::string_view> gguf;         // general.architecture
  std::span<const SizeKey> sizes = kStandardSizes;
  std::span<const SizeDefault> size_defaults = {};
  std::span<const FixedSetting> fixed = {};
  std::span<const std::span<const TensorRule>> tensors;
  // Suffixes and prefixes of tensors in files that carry nothing needed.
  std::span<const std::string_view> ignored_suffixes = {};
  std::span<const std::string_view> ignored_prefixes = {};
  std::span<const NamePrefix> prefixes = {};
  // Part of config.json that holds the text model's settings, where there; empty: none.
  std::string_view text_config = {};
  // Converters to GGUF reorder the rows of q and k so that a rotated pair is (2i, 2i + 1).
  bool gguf_interleaved_rope = false;
  AttentionBias attention_bias = AttentionBias::kNone;
  bool mlp_bias = false;  // "mlp_bias" decides
  WindowRule windows = {};
  ExpertRule experts = {};
  Arithmetic arithmetic = {};
};

// Every family known, in the order of the list in family.cc.
std::span<const Family* const> Families();

// The family of an architecture as the format names it (a class for Hugging Face). Some formats
// give plain models and mixtures of experts one name; `experts` tells.
//   kFailedPrecondition  none; lists those that are supported
absl::StatusOr<const Family*> FindFamily(FileFormat format, std::string_view architecture,
                                         bool experts = false);

// The family of config.json's "model_type", or nullptr.
const Family* FindFamilyByModelType(std::string_view model_type);

}  // namespace baton::checkpoint
