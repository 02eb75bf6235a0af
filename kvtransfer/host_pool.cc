#include <cstring>
#include <utility>

#include "kvtransfer/pool_access.h"

namespace baton::kvtransfer {
namespace {

std::byte* BlockIn(const KvMemory& memory, int rank, int layer, std::int32_t block) {
  const KvMemory::Rank& pool = memory.ranks[rank];
  return pool.layers[layer] + static_cast<std::size_t>(block) * pool.block_bytes;
}

class HostPoolReader final : public PoolReader {
 public:
  explicit HostPoolReader(std::shared_ptr<const KvMemory> memory) : memory_(std::move(memory)) {}

  absl::StatusOr<HostBlocks> Read(int rank, int layer,
                                  std::span<const std::int32_t> blocks) override {
    HostBlocks out;
    out.pieces.reserve(blocks.size());
    for (const std::int32_t block : blocks) {
      out.pieces.emplace_back(BlockIn(*memory_, rank, layer, block),
                              memory_->ranks[rank].block_bytes);
    }
    return out;
  }

 private:
  const std::shared_ptr<const KvMemory> memory_;
};

class HostPoolWriter final : public PoolWriter {
 public:
  explicit HostPoolWriter(std::shared_ptr<const KvMemory> memory) : memory_(std::move(memory)) {}

  void Write(int layer, std::size_t block_bytes, ByteCursor& frame, const Verify& verify,
             std::span<IncomingBlock> blocks) override {
    std::vector<std::byte> scratch;
    for (std::size_t index = 0; index < blocks.size(); ++index) {
      IncomingBlock& block = blocks[index];
      if (!block.granted) {
        frame.Take(block_bytes, nullptr);
        continue;
      }
      const std::byte* bytes = nullptr;
      if (IsWhole(block, block_bytes)) {
        std::byte* const to = At(layer, block.copies[0]);
        frame.Take(block_bytes, to);
        bytes = to;
      } else {
        bytes = TakeWhole(frame, block_bytes, verify != nullptr, scratch);
        for (const BlockCopy& copy : block.copies) {
          std::memcpy(At(layer, copy), bytes + copy.source_offset, copy.bytes);
        }
      }
      // Over our own copy: a sender may still scribble on shared memory.
      if (verify != nullptr && !verify(static_cast<int>(index), {bytes, block_bytes})) {
        block.status = absl::DataLossError("block damaged on the way");
      }
    }
  }

 private:
  // Cut alike on both sides, and held by one rank.
  static bool IsWhole(const IncomingBlock& block, std::size_t block_bytes) {
    return block.copies.size() == 1 && block.copies[0].bytes == block_bytes;
  }
  // The next block's bytes in one piece, where they lie if that will do.
  static const std::byte* TakeWhole(ByteCursor& frame, std::size_t block_bytes, bool own,
                                    std::vector<std::byte>& scratch) {
    if (const std::byte* bytes = frame.Contiguous(block_bytes); bytes != nullptr && !own) {
      frame.Take(block_bytes, nullptr);
      return bytes;
    }
    scratch.resize(block_bytes);
    frame.Take(block_bytes, scratch.data());
    return scratch.data();
  }
  std::byte* At(int layer, const BlockCopy& copy) const {
    return BlockIn(*memory_, copy.destination_rank, layer, copy.destination_block) +
           copy.destination_offset;
  }

  const std::shared_ptr<const KvMemory> memory_;
};

class HostPoolAccess final : public PoolAccess {
 public:
  explicit HostPoolAccess(KvMemory memory)
      : memory_(std::make_shared<const KvMemory>(std::move(memory))) {}
  std::unique_ptr<PoolReader> NewReader() override {
    return std::make_unique<HostPoolReader>(memory_);
  }
  std::unique_ptr<PoolWriter> NewWriter() override {
    return std::make_unique<HostPoolWriter>(memory_);
  }

 private:
  const std::shared_ptr<const KvMemory> memory_;
};

}  // namespace

std::unique_ptr<PoolAccess> NewHostPoolAccess(KvMemory memory) {
  return std::make_unique<HostPoolAccess>(std::move(memory));
}

}  // namespace baton::kvtransfer
