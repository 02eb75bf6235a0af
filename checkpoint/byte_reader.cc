#include "checkpoint/byte_reader.h"

#include "absl/strings/str_format.h"

namespace baton::checkpoint {

absl::StatusOr<std::span<const std::byte>> ByteReader::ReadBytes(std::uint64_t count) {
  if (count > remaining()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "file is truncated: %d bytes needed at offset %d, %d left; download it again", count,
        offset_, remaining()));
  }
  const std::span<const std::byte> result = bytes_.subspan(offset_, count);
  offset_ += count;
  return result;
}

absl::StatusOr<std::string_view> ByteReader::ReadString() {
  BATON_ASSIGN_OR_RETURN(const std::uint64_t length, Read<std::uint64_t>());
  BATON_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, ReadBytes(length));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace baton::checkpoint
