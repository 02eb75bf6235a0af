#include "checkpoint/tensor_binding.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kLayerMark = ".N.";

bool IsPerLayer(const TensorRule& rule) {
  return rule.canonical.find(kLayerMark) != std::string_view::npos;
}

std::string WithLayer(std::string_view pattern, int layer) {
  const std::size_t mark = pattern.find(kLayerMark);
  if (mark == std::string_view::npos) return std::string(pattern);
  return absl::StrCat(std::string(pattern.substr(0, mark)), ".", layer, ".",
                      std::string(pattern.substr(mark + kLayerMark.size())));
}

bool IsWanted(const TensorRule& rule, const ModelMetadata& metadata) {
  switch (rule.presence) {
    case Presence::kAlways:
      return true;
    case Presence::kUntied:
      return !metadata.tied_embeddings;
    case Presence::kAttentionBias:
      return metadata.attention_bias;
  }
  return true;
}

std::vector<std::int64_t> ExpectedShape(const TensorRule& rule, const ModelMetadata& metadata) {
  std::vector<std::int64_t> shape = {DimSize(rule.rows, metadata)};
  if (rule.columns != Dim::kOne) shape.push_back(DimSize(rule.columns, metadata));
  return shape;
}

absl::Status CheckTensor(const TensorRule& rule, const StoredTensor& tensor,
                         const std::vector<std::int64_t>& expected) {
  if (tensor.shape != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("wrong shape: ", ShapeText(tensor.shape), ", expected ", ShapeText(expected)));
  }
  if (!tensor.dtype.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("unsupported tensor type: ", tensor.type_name,
                                                      ", supported: ", SupportedDTypes(),
                                                      "; convert the model to one of them"));
  }
  const bool vector = rule.columns == Dim::kOne;
  if (vector && BlockElements(*tensor.dtype) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("wrong type: ", tensor.type_name, ", a vector must be F32, F16 or BF16"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> BindOne(const TensorRule& rule, const ModelMetadata& metadata, int layer,
                               const std::string& file_name, const StoredTensors& stored) {
  const std::vector<std::int64_t> expected = ExpectedShape(rule, metadata);
  const auto found = stored.find(file_name);
  if (found == stored.end()) {
    return absl::InvalidArgumentError(absl::StrCat("missing tensor: ", Quoted(file_name),
                                                   ", expected with shape ", ShapeText(expected)));
  }
  const absl::Status status = CheckTensor(rule, found->second, expected);
  if (!status.ok()) return Annotate(status, absl::StrCat("tensor ", Quoted(file_name)));
  return Tensor{.name = WithLayer(rule.canonical, layer),
                .dtype = *found->second.dtype,
                .shape = expected,
                .data = found->second.data};
}

// Whether a tensor that no rule called for may be there: it carries nothing needed, or it is a head
// stored beside tied embeddings.
bool MayBeLeft(const Family& family, FileFormat format, const ModelMetadata& metadata,
               std::string_view name) {
  for (const std::string_view suffix : family.ignored_suffixes) {
    if (name.ends_with(suffix)) return true;
  }
  if (!metadata.tied_embeddings) return false;
  return std::any_of(family.tensors.begin(), family.tensors.end(), [&](const TensorRule& rule) {
    return rule.presence == Presence::kUntied && FileName(rule, format, 0) == name;
  });
}

absl::Status CheckNoneLeft(const Family& family, FileFormat format, const ModelMetadata& metadata,
                           const StoredTensors& stored, const std::set<std::string>& used) {
  for (const auto& [name, tensor] : stored) {
    if (used.contains(name) || MayBeLeft(family, format, metadata, name)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("unknown tensor: ", Quoted(name), " is no part of architecture ",
                     std::string(family.name), " with these settings"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FileName(const TensorRule& rule, FileFormat format, int layer) {
  return WithLayer(format == FileFormat::kGguf ? rule.gguf : rule.huggingface, layer);
}

absl::StatusOr<std::map<std::string, Tensor, std::less<>>> BindTensors(
    const Family& family, FileFormat format, const ModelMetadata& metadata,
    const StoredTensors& stored) {
  std::map<std::string, Tensor, std::less<>> tensors;
  std::set<std::string> used;
  for (const TensorRule& rule : family.tensors) {
    if (!IsWanted(rule, metadata)) continue;
    const int copies = IsPerLayer(rule) ? metadata.num_layers : 1;
    for (int layer = 0; layer < copies; ++layer) {
      std::string file_name = FileName(rule, format, layer);
      BATON_ASSIGN_OR_RETURN(Tensor tensor, BindOne(rule, metadata, layer, file_name, stored));
      used.insert(std::move(file_name));
      std::string name = tensor.name;
      tensors.emplace(std::move(name), std::move(tensor));
    }
  }
  BATON_RETURN_IF_ERROR(CheckNoneLeft(family, format, metadata, stored, used));
  return tensors;
}

}  // namespace baton::checkpoint
