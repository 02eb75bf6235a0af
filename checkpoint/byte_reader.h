#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/status.h"

namespace baton::checkpoint {

// Reads little-endian values one after the other and never past the end: a read that does not fit
// fails with kInvalidArgument and takes nothing. Not thread-safe.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return bytes_.size() - offset_; }

  // The next `count` bytes, as a view.
  absl::StatusOr<std::span<const std::byte>> ReadBytes(std::uint64_t count);

  // A 64-bit length and that many bytes.
  absl::StatusOr<std::string_view> ReadString();

  template <typename T>
  absl::StatusOr<T> Read() {
    BATON_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, ReadBytes(sizeof(T)));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
};

}  // namespace baton::checkpoint
