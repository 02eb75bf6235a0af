#pragma once
#include <cstddef>
#include <cstdint>

namespace baton::kvtransfer {

// CRC32C (Castagnoli, RFC 3720 appendix B.4) of `size` bytes, continuing from `crc` of the bytes
// before them (0 at the start). Uses the SSE4.2 instruction where the processor has it.
std::uint32_t Crc32c(std::uint32_t crc, const void* data, std::size_t size);

// The table-driven form, for processors without the instruction and to test the other against.
std::uint32_t Crc32cPortable(std::uint32_t crc, const void* data, std::size_t size);

}  // namespace baton::kvtransfer
