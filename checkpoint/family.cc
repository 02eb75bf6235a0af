#include "checkpoint/family.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "checkpoint/families/llama.h"
#include "checkpoint/printable.h"
#include "common/check.h"

namespace baton::checkpoint {
namespace {

// The list of families: one line each.
constexpr const Family* kFamilies[] = {
    &kLlama,
};

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
    case Dim::kIntermediate:
      return metadata.intermediate_size;
  }
  BATON_CHECK(false, "no such dimension");
}

std::span<const Family* const> Families() { return kFamilies; }

absl::StatusOr<const Family*> FindFamily(FileFormat format, std::string_view architecture) {
  std::string supported;
  for (const Family* family : kFamilies) {
    for (const std::string_view name : Names(*family, format)) {
      if (name == architecture) return family;
      absl::StrAppend(&supported, supported.empty() ? "" : ", ", std::string(name));
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("unsupported architecture: ", Quoted(architecture), "; supported: ", supported));
}

}  // namespace baton::checkpoint
