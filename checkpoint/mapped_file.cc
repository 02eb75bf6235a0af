#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

// Closes a descriptor at the end of a scope; the mapping lives on without it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

MappedFile::MappedFile(std::string path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // Non-blocking: to open a pipe that nobody writes to would otherwise wait for ever.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return Annotate(absl::ErrnoToStatus(errno, "cannot open"), path);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) {
    return Annotate(absl::ErrnoToStatus(errno, "cannot stat"), path);
  }
  if (!S_ISREG(facts.st_mode)) {
    return Annotate(absl::InvalidArgumentError("not a regular file"), path);
  }
  if (facts.st_size == 0) {
    return Annotate(absl::InvalidArgumentError("file is empty; download it again"), path);
  }
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) return Annotate(absl::ErrnoToStatus(errno, "cannot map"), path);
  auto mapped = std::unique_ptr<MappedFile>(
      new MappedFile(path, {static_cast<const std::byte*>(address), size}));
  const std::string_view text(static_cast<const char*>(address), size);
  if (text.starts_with("version https://git-lfs")) {
    return Annotate(absl::InvalidArgumentError(
                        "file is a Git LFS pointer; run 'git lfs pull' in its directory"),
                    path);
  }
  return mapped;
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, std::size_t limit_bytes) {
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() > limit_bytes) {
    return Annotate(absl::InvalidArgumentError(absl::StrFormat(
                        "file is too large: %d bytes, limit %d", bytes.size(), limit_bytes)),
                    path);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace baton::checkpoint
