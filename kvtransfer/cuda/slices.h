#pragma once
#include <cstddef>
#include <vector>

#include "common/tensor_parallel.h"

namespace baton::kvtransfer::cuda {

// How both ends cut the KV cache, and the bytes of one head's K or V of one token.
struct SliceShape {
  int num_kv_heads = 0;  // of the whole model
  std::size_t head_bytes = 0;
  int source_block_size = 0;  // tokens
  int source_ranks = 1;
  int destination_block_size = 0;
  int destination_ranks = 1;
};

// A contiguous part of a source block that goes to one destination rank and stays contiguous there.
struct Slice {
  std::size_t offset = 0;  // in the source block
  std::size_t bytes = 0;
  bool operator==(const Slice&) const = default;
};

// What a block of `source_rank` gives to `destination_rank`, by ascending offset; the same for
// every block, so that both ends know the sizes of a message before it is sent. Empty: nothing; of
// several source ranks that hold a head the first one sends it. Pure.
//
// Requires that the larger block size is a multiple of the smaller.
std::vector<Slice> SlicesOf(const SliceShape& shape, int source_rank, int destination_rank);

// Pairs of ranks that have something to send to each other.
struct RankPair {
  int source = 0;
  int destination = 0;
  auto operator<=>(const RankPair&) const = default;
};
std::vector<RankPair> PairsOf(const SliceShape& shape);

}  // namespace baton::kvtransfer::cuda
