#include "checkpoint/gguf_split.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

constexpr int kMostParts = 65535;  // what the 16 bits of split.count hold

std::string Suffix(int number, int count) {
  return absl::StrFormat("-%05d-of-%05d.gguf", number, count);
}

absl::Status CheckPart(const GgufFile& part, int index, int count) {
  BATON_ASSIGN_OR_RETURN(const auto stated, part.metadata.Integer("split.no"));
  BATON_ASSIGN_OR_RETURN(const int stated_count, GgufSplitCount(part));
  if (stated.value_or(-1) == index && stated_count == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("part does not fit its name: it says number %d of %d, expected %d of %d",
                      stated.value_or(-1) + 1, stated_count, index + 1, count));
}

absl::Status AddPart(const std::string& path, int index, int count, GgufFile& first,
                     std::vector<std::unique_ptr<MappedFile>>& files) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  absl::StatusOr<GgufFile> part = ParseGguf(file->bytes());
  if (!part.ok()) return Annotate(part.status(), path);
  const absl::Status fits = CheckPart(*part, index, count);
  if (!fits.ok()) return Annotate(fits, path);
  for (auto& [name, tensor] : part->tensors) {
    if (first.tensors.emplace(name, std::move(tensor)).second) continue;
    return Annotate(absl::InvalidArgumentError(
                        absl::StrCat("tensor ", Quoted(name), " is in an earlier part too")),
                    path);
  }
  files.push_back(std::move(file));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> GgufSplitCount(const GgufFile& file) {
  BATON_ASSIGN_OR_RETURN(const auto parts, file.metadata.Integer("split.count"));
  const std::int64_t count = parts.value_or(1);
  if (count >= 0 && count <= kMostParts) return count == 0 ? 1 : static_cast<int>(count);
  return absl::InvalidArgumentError(
      absl::StrFormat("'split.count' out of range: %d, must be 0..%d", count, kMostParts));
}

absl::Status AddGgufParts(const std::string& path, int count, GgufFile& first,
                          std::vector<std::unique_ptr<MappedFile>>& files) {
  const std::string suffix = Suffix(1, count);
  if (!std::string_view(path).ends_with(suffix)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "one of %d parts of a split model: give the first, whose name ends in %s, or join them "
        "with llama.cpp's 'llama-gguf-split --merge'",
        count, Quoted(suffix)));
  }
  BATON_RETURN_IF_ERROR(CheckPart(first, 0, count));
  const std::string prefix = path.substr(0, path.size() - suffix.size());
  for (int index = 1; index < count; ++index) {
    BATON_RETURN_IF_ERROR(AddPart(prefix + Suffix(index + 1, count), index, count, first, files));
  }
  return absl::OkStatus();
}

}  // namespace baton::checkpoint
