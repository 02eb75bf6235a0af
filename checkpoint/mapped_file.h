#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace baton::checkpoint {

// A file mapped read-only into memory; pages come in when touched and are shared by all processes
// that map it. Immutable, thread-safe. The file must not shrink while mapped (the kernel would
// answer a read with SIGBUS): replace model files by renaming, not by writing over them.
class MappedFile {
 public:
  // Maps the whole of a regular file.
  //   kNotFound, kPermissionDenied  as the kernel says
  //   kInvalidArgument              empty, not a regular file, or a Git LFS pointer
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // starts at a page boundary

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes);
  const std::string path_;
  const std::span<const std::byte> bytes_;
};

// Reads a whole text file of at most `limit_bytes`. Errors as MappedFile::Open, and
// kInvalidArgument above the limit.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, std::size_t limit_bytes);

}  // namespace baton::checkpoint
