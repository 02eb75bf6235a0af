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

// The count in a name of a first part, -00001-of-00003.gguf; 0 where it is not one.
int CountInName(std::string_view path) {
  constexpr std::string_view kFirst = "-00001-of-";
  constexpr std::size_t kDigits = 5;
  constexpr std::string_view kExtension = ".gguf";
  constexpr std::size_t kLength = kFirst.size() + kDigits + kExtension.size();
  if (path.size() < kLength || !path.ends_with(kExtension)) return 0;
  const std::string_view end = path.substr(path.size() - kLength);
  if (!end.starts_with(kFirst)) return 0;
  int count = 0;
  for (const char digit : end.substr(kFirst.size(), kDigits)) {
    if (digit < '0' || digit > '9') return 0;
    count = 10 * count + (digit - '0');
  }
  return count;
}

}  // namespace

std::vector<std::string> GgufPartPaths(const std::string& path) {
  const int count = CountInName(path);
  if (count < 2) return {path};
  const std::string prefix = path.substr(0, path.size() - Suffix(1, count).size());
  std::vector<std::string> paths;
  for (int number = 1; number <= count; ++number) paths.push_back(prefix + Suffix(number, count));
  return paths;
}

absl::StatusOr<int> GgufSplitCount(const GgufFile& file) {
  BATON_ASSIGN_OR_RETURN(const auto parts, file.metadata.Integer("split.count"));
  const std::int64_t count = parts.value_or(1);
  if (count >= 0 && count <= kMostParts) return count == 0 ? 1 : static_cast<int>(count);
  return absl::InvalidArgumentError(
      absl::StrFormat("'split.count' out of range: %d, must be 0..%d", count, kMostParts));
}

absl::Status AddGgufParts(const std::string& path, int count, GgufFile& first,
                          std::vector<std::unique_ptr<MappedFile>>& files) {
  const std::vector<std::string> paths = GgufPartPaths(path);
  if (static_cast<int>(paths.size()) != count) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "one of %d parts of a split model: give the first, whose name ends in %s, or join them "
        "with llama.cpp's 'llama-gguf-split --merge'",
        count, Quoted(Suffix(1, count))));
  }
  BATON_RETURN_IF_ERROR(CheckPart(first, 0, count));
  for (int index = 1; index < count; ++index) {
    BATON_RETURN_IF_ERROR(AddPart(paths[index], index, count, first, files));
  }
  return absl::OkStatus();
}

}  // namespace baton::checkpoint
