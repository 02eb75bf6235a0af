#include "kvtransfer/plan.h"

#include <algorithm>
#include <string_view>

#include "common/tensor_parallel.h"

namespace baton::kvtransfer {
namespace {

std::size_t ElementBytes(std::string_view kv_dtype) {
  if (kv_dtype == "f16" || kv_dtype == "bf16") return 2;
  return kv_dtype == "f32" ? 4 : 0;
}

std::size_t RowBytes(const ModelFingerprint& fingerprint) {
  return ElementBytes(fingerprint.kv_dtype) * static_cast<std::size_t>(fingerprint.head_dim);
}

IndexRange HeadsOf(const ModelFingerprint& fingerprint, const KvCut& cut, int rank) {
  return KvHeadsOfRank(fingerprint.num_kv_heads, cut.tensor_parallel_size, rank);
}

std::vector<std::size_t> CountHeads(const ModelFingerprint& fingerprint, const KvCut& cut) {
  std::vector<std::size_t> heads;
  for (int rank = 0; rank < cut.tensor_parallel_size; ++rank) {
    heads.push_back(static_cast<std::size_t>(HeadsOf(fingerprint, cut, rank).size()));
  }
  return heads;
}

// Makes one copy of two that lie together on both sides. Only copies from `first` on are looked at.
void AppendMerged(const BlockCopy& copy, std::size_t first, std::vector<BlockCopy>* copies) {
  if (copies->size() > first) {
    BlockCopy& last = copies->back();
    if (last.destination_rank == copy.destination_rank &&
        last.destination_block == copy.destination_block &&
        last.source_offset + last.bytes == copy.source_offset &&
        last.destination_offset + last.bytes == copy.destination_offset) {
      last.bytes += copy.bytes;
      return;
    }
  }
  copies->push_back(copy);
}

}  // namespace

std::size_t BlockBytes(const ModelFingerprint& fingerprint, const KvCut& cut, int rank) {
  return 2 * static_cast<std::size_t>(HeadsOf(fingerprint, cut, rank).size()) *
         static_cast<std::size_t>(cut.block_size) * RowBytes(fingerprint);
}

int TransferShape::num_senders() const {
  return static_cast<int>(std::count(sends.begin(), sends.end(), true));
}

TransferPlan::TransferPlan(const ModelFingerprint& fingerprint, const KvCut& source,
                           const KvCut& destination)
    : source_(source),
      destination_(destination),
      row_bytes_(RowBytes(fingerprint)),
      head_bytes_source_(2 * static_cast<std::size_t>(source.block_size) * row_bytes_),
      source_heads_(CountHeads(fingerprint, source)),
      destination_heads_(CountHeads(fingerprint, destination)),
      overlaps_(source_heads_.size()) {
  for (int layer = 0; layer < fingerprint.num_layers; ++layer) {
    windows_.push_back(fingerprint.WindowOf(layer));
  }
  for (int from = 0; from < source.tensor_parallel_size; ++from) {
    const IndexRange heads = HeadsOf(fingerprint, source, from);
    // The rank before holds the very same head: it sends it.
    if (from > 0 && HeadsOf(fingerprint, source, from - 1) == heads) continue;
    for (int to = 0; to < destination.tensor_parallel_size; ++to) {
      const IndexRange wanted = HeadsOf(fingerprint, destination, to);
      const int begin = std::max(heads.begin, wanted.begin);
      const int end = std::min(heads.end, wanted.end);
      if (begin >= end) continue;
      overlaps_[from].push_back({.destination_rank = to,
                                 .source_head = begin - heads.begin,
                                 .destination_head = begin - wanted.begin,
                                 .num_heads = end - begin});
    }
  }
}

TransferPlan::TokenRange TransferPlan::MovedTokens(int layer, int num_tokens) const {
  const int grain = std::min(source_.block_size, destination_.block_size);
  const int first = FirstVisible(windows_[layer], num_tokens);
  return {.begin = first / grain * grain,
          .end = static_cast<int>((std::int64_t{num_tokens} + grain - 1) / grain * grain)};
}

TransferShape TransferPlan::ShapeOf(int num_tokens) const {
  TransferShape shape{.sends = {}, .first_blocks = {}, .num_blocks = source_.BlocksFor(num_tokens)};
  for (const auto& overlaps : overlaps_) shape.sends.push_back(!overlaps.empty());
  for (int layer = 0; layer < num_layers(); ++layer) {
    const TokenRange moved = MovedTokens(layer, num_tokens);
    shape.first_blocks.push_back(moved.begin < moved.end ? moved.begin / source_.block_size
                                                         : shape.num_blocks);
  }
  return shape;
}

void TransferPlan::AppendCopies(int rank, int layer, int block, int num_tokens,
                                std::vector<BlockCopy>* copies) const {
  const int source_size = source_.block_size, destination_size = destination_.block_size;
  const int block_begin = block * source_size;
  const TokenRange moved = MovedTokens(layer, num_tokens);
  const int begin = std::max(block_begin, moved.begin);
  const int end = std::min(block_begin + source_size, moved.end);
  const std::size_t first_of_ours = copies->size();
  // Index of a row within a block of `num_heads` heads.
  const auto row = [](std::size_t half, std::size_t num_heads, std::size_t head, int size,
                      int token) {
    return ((half * num_heads + head) * static_cast<std::size_t>(size)) +
           static_cast<std::size_t>(token);
  };
  for (const Overlap& overlap : overlaps_[rank]) {
    const std::size_t held = source_heads_[rank];
    const std::size_t wanted = destination_heads_[overlap.destination_rank];
    // Where both sides have the same tokens in a block, heads that follow each other lie together.
    const int heads_per_run = source_size == destination_size ? overlap.num_heads : 1;
    for (std::size_t half = 0; half < 2; ++half) {
      for (int head = 0; head < overlap.num_heads; head += heads_per_run) {
        for (int token = begin; token < end;) {
          const int to_block = token / destination_size;
          const int run_end = std::min(end, (to_block + 1) * destination_size);
          const auto num_rows = static_cast<std::size_t>(heads_per_run * (run_end - token));
          AppendMerged({.source_offset = row_bytes_ * row(half, held, overlap.source_head + head,
                                                          source_size, token - block_begin),
                        .destination_rank = overlap.destination_rank,
                        .destination_block = to_block,
                        .destination_offset =
                            row_bytes_ * row(half, wanted, overlap.destination_head + head,
                                             destination_size, token - to_block * destination_size),
                        .bytes = row_bytes_ * num_rows},
                       first_of_ours, copies);
          token = run_end;
        }
      }
    }
  }
}

}  // namespace baton::kvtransfer
