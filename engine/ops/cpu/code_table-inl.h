// Looking up the 4-bit codes of a weight vector, per target: included inside the per-target builds
// of the tile kernels, like exp-inl.h.
#if defined(BATON_ENGINE_OPS_CPU_CODE_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_ENGINE_OPS_CPU_CODE_TABLE_INL_H_
#undef BATON_ENGINE_OPS_CPU_CODE_TABLE_INL_H_
#else
#define BATON_ENGINE_OPS_CPU_CODE_TABLE_INL_H_
#endif

#include <array>
#include <cstdint>
#include <cstring>

#include "checkpoint/codebooks.h"
#include "engine/ops/cpu/packed_matrix.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace baton::engine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The entries of a table with the offset of 128 that bytes have in tiles.
template <CodeTable kTable>
constexpr std::array<std::uint8_t, 16> OffsetEntries() {
  std::array<std::uint8_t, 16> entries{};
  for (int i = 0; i < 16; ++i) {
    const int value =
        kTable == CodeTable::kIq4 ? checkpoint::kIq4Values[i] : checkpoint::kFp4Values[i];
    entries[i] = static_cast<std::uint8_t>(value + 128);
  }
  return entries;
}

// Every byte of `codes`, each 0..15, becomes its entry. Without a table: `codes` as they are.
template <CodeTable kTable, class D, class V = hn::Vec<D>>
HWY_INLINE V LookUpCodes(D du, V codes) {
  if constexpr (kTable == CodeTable::kNone) {
    return codes;
  } else {
    alignas(16) static constexpr std::array<std::uint8_t, 16> kEntries = OffsetEntries<kTable>();
#if HWY_TARGET == HWY_SCALAR
    std::uint32_t word = hn::GetLane(codes);
    std::uint32_t entries = 0;
    for (int shift = 0; shift < 32; shift += 8) {
      entries |= std::uint32_t{kEntries[(word >> shift) & 15]} << shift;
    }
    return hn::Set(du, entries);
#else
    const hn::Repartition<std::uint8_t, D> bytes;
    const auto table = hn::LoadDup128(bytes, kEntries.data());
    return hn::BitCast(du, hn::TableLookupBytes(table, hn::BitCast(bytes, codes)));
#endif
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::engine::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
