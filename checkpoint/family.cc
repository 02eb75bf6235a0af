#include "checkpoint/family.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/families/families.h"
#include "checkpoint/printable.h"
#include "common/check.h"

namespace baton::checkpoint {
namespace {

// The list of families.
constexpr const Family* kFamilies[] = {
    &kLlama, &kMistral, &kMixtral, &kQwen2,  &kQwen3,   &kQwen3Moe,
    &kPhi3,  &kGemma,   &kGemma2,  &kGemma3, &kSmolLm3,
};

// The toolchain's string_view need not be Abseil's.
void AppendView(std::string* out, std::string_view text) { out->append(text); }

bool HasExperts(const Family& family) { return !family.experts.count_key.empty(); }

std::span<const std::string_view> Names(const Family& family, FileFormat format) {
  return format == FileFormat::kGguf ? family.gguf : family.classes;
}

}  // namespace

std::int64_t DimSize(Dim dim, const ModelMetadata& metadata) {
  const auto heads = [&](int count) { return std::int64_t{count} * metadata.head_dim; };
  switch (dim) {
    case Dim::kOne:
      return 1;
    case Dim::kVocab:
      return metadata.vocab_size;
    case Dim::kHidden:
      return metadata.hidden_size;
    case Dim::kQuery:
      return heads(metadata.num_heads);
    case Dim::kKeyValue:
      return heads(metadata.num_kv_heads);
    case Dim::kHead:
      return metadata.head_dim;
    case Dim::kIntermediate:
      return metadata.intermediate_size;
    case Dim::kExperts:
      return metadata.num_experts;
    case Dim::kExpertIntermediate:
      return metadata.expert_intermediate_size;
  }
  BATON_CHECK(false, "no such dimension");
}

std::span<const Family* const> Families() { return kFamilies; }

absl::StatusOr<const Family*> FindFamily(FileFormat format, std::string_view architecture,
                                         bool experts) {
  std::vector<std::string_view> supported;
  const Family* named = nullptr;
  for (const Family* family : kFamilies) {
    for (const std::string_view name : Names(*family, format)) {
      if (name == architecture && (named == nullptr || HasExperts(*family) == experts)) {
        named = family;
      }
      if (std::find(supported.begin(), supported.end(), name) == supported.end()) {
        supported.push_back(name);
      }
    }
  }
  if (named != nullptr) return named;
  return absl::FailedPreconditionError(
      absl::StrCat("unsupported architecture: ", Quoted(architecture),
                   "; supported: ", absl::StrJoin(supported, ", ", AppendView)));
}

const Family* FindFamilyByModelType(std::string_view model_type) {
  for (const Family* family : kFamilies) {
    const auto& types = family->model_types;
    if (std::find(types.begin(), types.end(), model_type) != types.end()) return family;
  }
  return nullptr;
}

}  // namespace baton::checkpoint
