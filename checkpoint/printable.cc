#include "checkpoint/printable.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/tensor.h"

namespace baton::checkpoint {

std::string Quoted(std::string_view text) {
  constexpr std::size_t kLongest = 96;
  const std::string_view shown = text.substr(0, kLongest);
  return absl::StrCat("'", absl::CHexEscape(absl::string_view(shown.data(), shown.size())),
                      shown.size() < text.size() ? "...'" : "'");
}

std::string ShapeText(std::span<const std::int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape.begin(), shape.end(), ", "), "]");
}

std::string SupportedDTypes() {
  std::string list;
  for (int i = 0; i < kNumFileDTypes; ++i) {
    const std::string_view name = DTypeName(static_cast<DType>(i));
    absl::StrAppend(&list, i == 0 ? "" : ", ", absl::string_view(name.data(), name.size()));
  }
  return list;
}

}  // namespace baton::checkpoint
