#include "kvtransfer/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace baton::kvtransfer {
namespace {

constexpr std::array<std::uint32_t, 256> MakeTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t Crc32cSse42(std::uint32_t crc, const void* data,
                                                            std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t state = ~crc;
  for (; size >= 8; size -= 8, bytes += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes, 8);
    state = _mm_crc32_u64(state, word);
  }
  auto narrow = static_cast<std::uint32_t>(state);
  for (; size > 0; --size, ++bytes) narrow = _mm_crc32_u8(narrow, *bytes);
  return ~narrow;
}
#endif

}  // namespace

std::uint32_t Crc32cPortable(std::uint32_t crc, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size > 0; --size, ++bytes) crc = kTable[(crc ^ *bytes) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t Crc32c(std::uint32_t crc, const void* data, std::size_t size) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return Crc32cSse42(crc, data, size);
#endif
  return Crc32cPortable(crc, data, size);
}

}  // namespace baton::kvtransfer
