#include "kvtransfer/plan.h"

#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::kvtransfer {
namespace {

absl::Status CheckField(const char* name, std::size_t source, std::size_t destination) {
  if (source == destination) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("KV layouts differ: %s is %d at the source and %d at the destination", name,
                      source, destination));
}

absl::Status CheckLayouts(const BlockLayout& source, const BlockLayout& destination) {
  BATON_RETURN_IF_ERROR(CheckField("num_layers", source.num_layers, destination.num_layers));
  BATON_RETURN_IF_ERROR(CheckField("num_kv_heads", source.num_kv_heads, destination.num_kv_heads));
  BATON_RETURN_IF_ERROR(CheckField("head_dim", source.head_dim, destination.head_dim));
  BATON_RETURN_IF_ERROR(CheckField("block_size", source.block_size, destination.block_size));
  return CheckField("block_bytes", source.block_bytes, destination.block_bytes);
}

}  // namespace

BlockLayout LayoutOf(const ModelFingerprint& fingerprint, std::size_t block_bytes) {
  return {.num_layers = fingerprint.num_layers,
          .num_kv_heads = fingerprint.num_kv_heads,
          .head_dim = fingerprint.head_dim,
          .block_size = fingerprint.block_size,
          .block_bytes = block_bytes};
}

std::vector<int> FirstMovedBlocks(const ModelFingerprint& fingerprint, int num_tokens) {
  std::vector<int> first_blocks(fingerprint.num_layers);
  for (int layer = 0; layer < fingerprint.num_layers; ++layer) {
    first_blocks[layer] = fingerprint.FirstVisibleBlock(layer, num_tokens);
  }
  return first_blocks;
}

absl::StatusOr<std::vector<Copy>> PlanCopies(const TransferTables& tables, int layer,
                                             int first_block, int last_block) {
  BATON_RETURN_IF_ERROR(CheckLayouts(tables.source, tables.destination));
  if (layer < 0 || layer >= tables.source.num_layers) {
    return absl::InvalidArgumentError(absl::StrFormat("layer out of range: %d, must be 0..%d",
                                                      layer, tables.source.num_layers - 1));
  }
  const std::size_t num_blocks = tables.destination_blocks.size();
  if (tables.source_blocks.size() != num_blocks) {
    return absl::InvalidArgumentError(
        absl::StrFormat("block tables differ in length: %d source blocks, %d destination blocks",
                        tables.source_blocks.size(), num_blocks));
  }
  if (first_block < 0 || first_block > last_block ||
      static_cast<std::size_t>(last_block) > num_blocks) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prompt blocks out of range: [%d, %d), must lie in [0, %d)", first_block,
                        last_block, num_blocks));
  }
  std::vector<Copy> copies;
  copies.reserve(last_block - first_block);
  for (int block = first_block; block < last_block; ++block) {
    if (tables.source_blocks[block] < 0 || tables.destination_blocks[block] < 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "block table holds a negative id at prompt block %d: source %d, destination %d", block,
          tables.source_blocks[block], tables.destination_blocks[block]));
    }
    copies.push_back({.source_block = tables.source_blocks[block],
                      .destination_block = tables.destination_blocks[block],
                      .bytes = tables.source.block_bytes});
  }
  return copies;
}

}  // namespace baton::kvtransfer
