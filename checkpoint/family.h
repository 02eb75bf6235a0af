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
  kIntermediate,
};
std::int64_t DimSize(Dim dim, const ModelMetadata& metadata);

// Which models have the tensor.
enum class Presence : std::uint8_t { kAlways, kUntied, kAttentionBias };

// One tensor, or one per layer when the names hold ".N.", which stands for the layer's number.
struct TensorRule {
  std::string_view canonical;
  std::string_view huggingface;
  std::string_view gguf;
  Dim rows;     // of a vector: its length
  Dim columns;  // kOne: a vector
  Presence presence = Presence::kAlways;
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

// A setting of config.json that changes the arithmetic in a way the family does not describe yet:
// anything but absent, null or `accepted` (JSON text) is refused.
struct FixedSetting {
  std::string_view huggingface;
  std::string_view accepted;
};

// A model family as data: how its files name things. Adding one is a file in checkpoint/families/
// and a line in family.cc; reading, checking and naming follow from the tables.
struct Family {
  std::string_view name;                      // ModelMetadata::architecture
  std::span<const std::string_view> classes;  // "architectures" of config.json
  std::span<const std::string_view> gguf;     // general.architecture
  std::span<const SizeKey> sizes;
  std::span<const FixedSetting> fixed;
  std::span<const TensorRule> tensors;
  // Suffixes of tensors in files that carry nothing needed (tables computed from the config).
  std::span<const std::string_view> ignored_suffixes;
  // Converters to GGUF reorder the rows of q and k so that a rotated pair is (2i, 2i + 1).
  bool gguf_interleaved_rope;
};

// Every family known, in the order of the list in family.cc.
std::span<const Family* const> Families();

// The family of an architecture as the format names it (a class for Hugging Face).
//   kFailedPrecondition  none; lists those that are supported
absl::StatusOr<const Family*> FindFamily(FileFormat format, std::string_view architecture);

}  // namespace baton::checkpoint
