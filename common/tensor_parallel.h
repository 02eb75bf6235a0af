#pragma once

#include "common/check.h"

// How the heads of a layer are dealt out to the ranks of a tensor-parallel group. The engine that
// computes with them and the transfers that move them between groups of unequal size both follow it.
namespace baton {

// Indices [begin, end).
struct IndexRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool contains(int index) const { return index >= begin && index < end; }
  bool operator==(const IndexRange&) const = default;
};

// Part `part` of `count` things cut into `num_parts` runs in order; the first count % num_parts runs
// are one longer.
inline IndexRange PartOf(int count, int num_parts, int part) {
  BATON_CHECK(num_parts > 0 && part >= 0 && part < num_parts, "part out of range");
  const int size = count / num_parts, longer = count % num_parts;
  const int begin = part * size + (part < longer ? part : longer);
  return {begin, begin + size + (part < longer ? 1 : 0)};
}

// The KV heads that rank `rank` of `world_size` holds: runs in order, the first ones longer where
// they don't divide evenly; one head each, some held by several ranks, where there are more ranks
// than heads.
inline IndexRange KvHeadsOfRank(int num_kv_heads, int world_size, int rank) {
  if (world_size <= num_kv_heads) return PartOf(num_kv_heads, world_size, rank);
  const int head = static_cast<int>(static_cast<long long>(rank) * num_kv_heads / world_size);
  return {head, head + 1};
}

// The query heads that go with them: all that read the rank's KV heads, or, where a KV head is held
// by several ranks, this rank's part of them (empty when there are fewer than ranks).
inline IndexRange QueryHeadsOfRank(int num_heads, int num_kv_heads, int world_size, int rank) {
  const int group = num_heads / num_kv_heads;
  const IndexRange kv = KvHeadsOfRank(num_kv_heads, world_size, rank);
  if (world_size <= num_kv_heads) return {kv.begin * group, kv.end * group};
  int first = rank, last = rank;  // the ranks that hold this KV head
  while (first > 0 && KvHeadsOfRank(num_kv_heads, world_size, first - 1) == kv) --first;
  while (last + 1 < world_size && KvHeadsOfRank(num_kv_heads, world_size, last + 1) == kv) ++last;
  const IndexRange part = PartOf(group, last - first + 1, rank - first);
  return {kv.begin * group + part.begin, kv.begin * group + part.end};
}

}  // namespace baton
