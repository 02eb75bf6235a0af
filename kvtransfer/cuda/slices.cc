#include "kvtransfer/cuda/slices.h"

#include <algorithm>

namespace baton::kvtransfer::cuda {
namespace {

// The heads of `source_rank` that no rank before it holds.
IndexRange SentHeads(const SliceShape& shape, int source_rank) {
  IndexRange heads = KvHeadsOfRank(shape.num_kv_heads, shape.source_ranks, source_rank);
  if (source_rank > 0) {
    const IndexRange before =
        KvHeadsOfRank(shape.num_kv_heads, shape.source_ranks, source_rank - 1);
    heads.begin = std::max(heads.begin, before.end);
  }
  return heads;
}

}  // namespace

std::vector<Slice> SlicesOf(const SliceShape& shape, int source_rank, int destination_rank) {
  const IndexRange source = KvHeadsOfRank(shape.num_kv_heads, shape.source_ranks, source_rank);
  const IndexRange sent = SentHeads(shape, source_rank);
  const IndexRange destination =
      KvHeadsOfRank(shape.num_kv_heads, shape.destination_ranks, destination_rank);
  const int begin = std::max(sent.begin, destination.begin);
  const int end = std::min(sent.end, destination.end);
  if (begin >= end) return {};

  const std::size_t rows = static_cast<std::size_t>(shape.source_block_size);
  const std::size_t part_bytes = source.size() * rows * shape.head_bytes;  // all K, or all V
  const bool same_size = shape.source_block_size == shape.destination_block_size;
  if (same_size && source == destination && sent == source) return {{0, 2 * part_bytes}};

  // With equal block sizes adjoining heads adjoin on both sides; else each head, and each run of
  // its tokens that falls into one destination block, stands alone.
  const int heads_per_slice = same_size ? end - begin : 1;
  const std::size_t rows_per_slice =
      std::min<std::size_t>(rows, static_cast<std::size_t>(shape.destination_block_size));
  std::vector<Slice> slices;
  for (int part = 0; part < 2; ++part) {
    for (int head = begin; head < end; head += heads_per_slice) {
      const std::size_t first = part * part_bytes + (head - source.begin) * rows * shape.head_bytes;
      for (std::size_t row = 0; row < rows; row += rows_per_slice) {
        slices.push_back({.offset = first + row * shape.head_bytes,
                          .bytes = heads_per_slice * rows_per_slice * shape.head_bytes});
      }
    }
  }
  return slices;
}

std::vector<RankPair> PairsOf(const SliceShape& shape) {
  std::vector<RankPair> pairs;
  for (int source = 0; source < shape.source_ranks; ++source) {
    for (int destination = 0; destination < shape.destination_ranks; ++destination) {
      if (!SlicesOf(shape, source, destination).empty()) pairs.push_back({source, destination});
    }
  }
  return pairs;
}

}  // namespace baton::kvtransfer::cuda
