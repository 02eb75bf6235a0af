#include "checkpoint/tensor_binding.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kLayerMark = ".N.";
constexpr std::string_view kExpertMark = ".E.";

using Tensors = std::map<std::string, Tensor, std::less<>>;
using Rules = std::vector<const TensorRule*>;

bool Has(std::string_view pattern, std::string_view mark) {
  return pattern.find(mark) != std::string_view::npos;
}

std::string WithNumber(std::string_view pattern, std::string_view mark, int number) {
  const std::size_t place = pattern.find(mark);
  if (place == std::string_view::npos) return std::string(pattern);
  return absl::StrCat(std::string(pattern.substr(0, place)), ".", number, ".",
                      std::string(pattern.substr(place + mark.size())));
}

std::string Numbered(std::string_view pattern, int layer, int expert) {
  return WithNumber(WithNumber(pattern, kLayerMark, layer), kExpertMark, expert);
}

std::string_view Pattern(const TensorRule& rule, FileFormat format) {
  return format == FileFormat::kGguf ? rule.gguf : rule.huggingface;
}

bool IsWanted(const TensorRule& rule, const ModelMetadata& metadata) {
  switch (rule.presence) {
    case Presence::kAlways:
      return true;
    case Presence::kUntied:
      return !metadata.tied_embeddings;
    case Presence::kAttentionBias:
      return metadata.attention_bias;
    case Presence::kOutputBias:
      return metadata.output_bias;
    case Presence::kMlpBias:
      return metadata.mlp_bias;
    case Presence::kQkNorm:
      return metadata.qk_norm;
    case Presence::kPostNorms:
      return metadata.post_norms;
  }
  return true;
}

// The rules in use, in groups: those of one group are parts of one tensor of the file.
std::vector<Rules> GroupRules(const Family& family, FileFormat format,
                              const ModelMetadata& metadata) {
  std::vector<Rules> groups;
  for (const std::span<const TensorRule> list : family.tensors) {
    for (const TensorRule& rule : list) {
      if (!IsWanted(rule, metadata)) continue;
      if (groups.empty() || Pattern(*groups.back().front(), format) != Pattern(rule, format)) {
        groups.emplace_back();
      }
      groups.back().push_back(&rule);
    }
  }
  return groups;
}

std::vector<std::int64_t> ShapeOf(const TensorRule& rule, const ModelMetadata& metadata) {
  std::vector<std::int64_t> shape = {DimSize(rule.rows, metadata)};
  if (rule.columns != Dim::kOne) shape.push_back(DimSize(rule.columns, metadata));
  return shape;
}

absl::Status CheckTensor(const StoredTensor& tensor, const std::vector<std::int64_t>& expected) {
  if (tensor.shape != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("wrong shape: ", ShapeText(tensor.shape), ", expected ", ShapeText(expected)));
  }
  if (!tensor.dtype.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("unsupported tensor type: ", tensor.type_name,
                                                      ", supported: ", SupportedDTypes(),
                                                      "; convert the model to one of them"));
  }
  if (expected.size() == 1 && BlockElements(*tensor.dtype) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("wrong type: ", tensor.type_name, ", a vector must be F32, F16 or BF16"));
  }
  return absl::OkStatus();
}

// Binds the tensors of one model, from one set of stored ones.
class Binder {
 public:
  Binder(FileFormat format, const ModelMetadata& metadata, const StoredTensors& stored)
      : format_(format), metadata_(metadata), stored_(stored) {}

  absl::Status BindGroup(const Rules& group) {
    const std::string_view pattern = ChoosePattern(*group.front());
    const bool per_expert = Has(group.front()->canonical, kExpertMark);
    const int layers = Has(group.front()->canonical, kLayerMark) ? metadata_.num_layers : 1;
    const int experts = per_expert && Has(pattern, kExpertMark) ? metadata_.num_experts : 1;
    for (int layer = 0; layer < layers; ++layer) {
      for (int expert = 0; expert < experts; ++expert) {
        const std::string file_name = Numbered(pattern, layer, expert);
        BATON_RETURN_IF_ERROR(per_expert && experts == 1 && !Has(pattern, kExpertMark)
                                  ? BindStacked(*group.front(), file_name, layer)
                                  : BindParts(group, file_name, layer, expert));
      }
    }
    return absl::OkStatus();
  }

  Tensors TakeTensors() { return std::move(tensors_); }
  bool IsUsed(const std::string& name) const { return used_.contains(name); }

 private:
  std::string_view ChoosePattern(const TensorRule& rule) const {
    const std::string_view pattern = Pattern(rule, format_);
    const bool old = format_ == FileFormat::kGguf && !rule.old_gguf.empty() &&
                     !stored_.contains(Numbered(pattern, 0, 0)) &&
                     stored_.contains(Numbered(rule.old_gguf, 0, 0));
    return old ? rule.old_gguf : pattern;
  }

  absl::StatusOr<const StoredTensor*> Take(const std::string& file_name,
                                           const std::vector<std::int64_t>& expected) {
    const auto found = stored_.find(file_name);
    if (found == stored_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "missing tensor: ", Quoted(file_name), ", expected with shape ", ShapeText(expected)));
    }
    const absl::Status status = CheckTensor(found->second, expected);
    if (!status.ok()) return Annotate(status, absl::StrCat("tensor ", Quoted(file_name)));
    used_.insert(file_name);
    return &found->second;
  }

  void Add(std::string name, const StoredTensor& stored, std::vector<std::int64_t> shape,
           std::span<const std::byte> data) {
    Tensor tensor{.name = name,
                  .dtype = *stored.dtype,
                  .shape = std::move(shape),
                  .data = data,
                  .column_order = stored.column_order};
    tensors_.emplace(std::move(name), std::move(tensor));
  }

  // A row is whole blocks of any type, so rows can be told apart by counting bytes.
  absl::Status BindParts(const Rules& group, const std::string& file_name, int layer, int expert) {
    std::vector<std::int64_t> whole = ShapeOf(*group.front(), metadata_);
    for (std::size_t i = 1; i < group.size(); ++i) whole[0] += ShapeOf(*group[i], metadata_)[0];
    BATON_ASSIGN_OR_RETURN(const StoredTensor* stored, Take(file_name, whole));
    const std::size_t row_bytes = stored->data.size() / static_cast<std::size_t>(whole[0]);
    std::size_t begin = 0;
    for (const TensorRule* rule : group) {
      std::vector<std::int64_t> shape = ShapeOf(*rule, metadata_);
      const std::size_t bytes = static_cast<std::size_t>(shape[0]) * row_bytes;
      Add(Numbered(rule->canonical, layer, expert), *stored, std::move(shape),
          stored->data.subspan(begin, bytes));
      begin += bytes;
    }
    return absl::OkStatus();
  }

  absl::Status BindStacked(const TensorRule& rule, const std::string& file_name, int layer) {
    const std::vector<std::int64_t> shape = ShapeOf(rule, metadata_);
    std::vector<std::int64_t> whole = shape;
    whole.insert(whole.begin(), metadata_.num_experts);
    BATON_ASSIGN_OR_RETURN(const StoredTensor* stored, Take(file_name, whole));
    const std::size_t bytes = stored->data.size() / static_cast<std::size_t>(metadata_.num_experts);
    for (int expert = 0; expert < metadata_.num_experts; ++expert) {
      Add(Numbered(rule.canonical, layer, expert), *stored, shape,
          stored->data.subspan(static_cast<std::size_t>(expert) * bytes, bytes));
    }
    return absl::OkStatus();
  }

  const FileFormat format_;
  const ModelMetadata& metadata_;
  const StoredTensors& stored_;
  Tensors tensors_;
  std::set<std::string> used_;
};

// Whether a tensor that no rule called for may be there: it carries nothing needed, or it is a head
// stored beside tied embeddings.
bool MayBeLeft(const Family& family, FileFormat format, const ModelMetadata& metadata,
               std::string_view name) {
  for (const std::string_view suffix : family.ignored_suffixes) {
    if (name.ends_with(suffix)) return true;
  }
  for (const std::string_view prefix : family.ignored_prefixes) {
    if (name.starts_with(prefix)) return true;
  }
  if (!metadata.tied_embeddings) return false;
  for (const std::span<const TensorRule> list : family.tensors) {
    for (const TensorRule& rule : list) {
      if (rule.presence == Presence::kUntied && Pattern(rule, format) == name) return true;
    }
  }
  return false;
}

absl::Status CheckNoneLeft(const Family& family, FileFormat format, const ModelMetadata& metadata,
                           const StoredTensors& stored, const Binder& binder) {
  for (const auto& [name, tensor] : stored) {
    if (binder.IsUsed(name) || tensor.may_be_left || MayBeLeft(family, format, metadata, name))
      continue;
    return absl::FailedPreconditionError(
        absl::StrCat("unknown tensor: ", Quoted(name), " is no part of architecture ",
                     std::string(family.name), " with these settings"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensors> Bind(const Family& family, FileFormat format, const ModelMetadata& metadata,
                             const StoredTensors& stored) {
  Binder binder(format, metadata, stored);
  for (const Rules& group : GroupRules(family, format, metadata)) {
    BATON_RETURN_IF_ERROR(binder.BindGroup(group));
  }
  BATON_RETURN_IF_ERROR(CheckNoneLeft(family, format, metadata, stored, binder));
  return binder.TakeTensors();
}

// The same tensors under the names that the rules expect.
absl::StatusOr<StoredTensors> WithoutPrefixes(const Family& family, const StoredTensors& stored) {
  StoredTensors renamed;
  for (const auto& [name, tensor] : stored) {
    std::string plain = name;
    for (const NamePrefix& prefix : family.prefixes) {
      if (!plain.starts_with(prefix.file)) continue;
      plain = absl::StrCat(std::string(prefix.rules), plain.substr(prefix.file.size()));
      break;
    }
    if (!renamed.emplace(std::move(plain), tensor).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor stored twice: ", Quoted(name),
                                                     " is there under another prefix too"));
    }
  }
  return renamed;
}

}  // namespace

absl::StatusOr<std::map<std::string, Tensor, std::less<>>> BindTensors(
    const Family& family, FileFormat format, const ModelMetadata& metadata,
    const StoredTensors& stored) {
  if (family.prefixes.empty() || format == FileFormat::kGguf) {
    return Bind(family, format, metadata, stored);
  }
  BATON_ASSIGN_OR_RETURN(const StoredTensors renamed, WithoutPrefixes(family, stored));
  return Bind(family, format, metadata, renamed);
}

}  // namespace baton::checkpoint
