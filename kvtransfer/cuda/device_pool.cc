#include "kvtransfer/cuda/device_pool.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/check.h"
#include "common/status.h"
#include "kvtransfer/cuda/pinned_slots.h"

namespace baton::kvtransfer::cuda {
namespace {

std::vector<int> DevicesOf(const KvMemory& memory) {
  std::vector<int> devices;
  for (const KvMemory::Rank& rank : memory.ranks) devices.push_back(rank.device);
  return devices;
}

std::byte* BlockAt(const KvMemory::Rank& rank, int layer, std::int32_t block) {
  return rank.layers[layer] + block * rank.block_bytes;
}

// The device may still write to a slot, or to the pool from it, when a copy does not end in time.
// Then no block can be given back any more.
void CheckEnded(const absl::Status& copied) {
  BATON_CHECK(copied.code() != absl::StatusCode::kDeadlineExceeded,
              "a copy between KV blocks and pinned memory does not end: the device hangs");
}

class Reader final : public PoolReader {
 public:
  Reader(KvMemory memory, const DevicePoolOptions& options)
      : memory_(std::move(memory)),
        timeout_(options.timeout),
        slots_(std::make_shared<PinnedSlots>(options.slots_per_reader, options.frame_bytes,
                                             DevicesOf(memory_))) {}

  absl::StatusOr<HostBlocks> Read(int rank, int layer,
                                  std::span<const std::int32_t> blocks) override {
    const KvMemory::Rank& from = memory_.ranks[rank];
    BATON_CHECK(blocks.size() * from.block_bytes <= slots_->slot_bytes(),
                "a put is larger than a pinned frame");
    BATON_ASSIGN_OR_RETURN(const std::shared_ptr<PinnedSlot> slot,
                           slots_->Take(absl::InfinitePast()));
    std::byte* to = slot->data();
    for (std::size_t i = 0; i < blocks.size();) {
      std::size_t end = i + 1;
      while (end < blocks.size() && blocks[end] == blocks[end - 1] + 1) ++end;
      const std::size_t run = (end - i) * from.block_bytes;
      BATON_RETURN_IF_ERROR(slot->Add(rank, BlockAt(from, layer, blocks[i]), to, run));
      to += run;
      i = end;
    }
    const absl::Status copied = slot->Copy(absl::Now() + timeout_);
    CheckEnded(copied);
    BATON_RETURN_IF_ERROR(copied);
    HostBlocks read{.pieces = {}, .hold = slot};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      read.pieces.emplace_back(slot->data() + i * from.block_bytes, from.block_bytes);
    }
    return read;
  }

 private:
  const KvMemory memory_;  // a view
  const absl::Duration timeout_;
  const std::shared_ptr<PinnedSlots> slots_;
};

class Writer final : public PoolWriter {
 public:
  Writer(KvMemory memory, const DevicePoolOptions& options)
      : memory_(std::move(memory)),
        timeout_(options.timeout),
        slots_(std::make_shared<PinnedSlots>(options.writer_slots, options.frame_bytes,
                                             DevicesOf(memory_))) {}

  void Write(int layer, std::size_t block_bytes, ByteCursor& frame, const Verify& verify,
             std::span<IncomingBlock> blocks) override {
    const std::size_t per_slot = std::max<std::size_t>(1, slots_->slot_bytes() / block_bytes);
    for (std::size_t first = 0; first < blocks.size(); first += per_slot) {
      const auto part = blocks.subspan(first, std::min(per_slot, blocks.size() - first));
      const absl::Status status =
          WritePart(layer, block_bytes, frame, verify, static_cast<int>(first), part);
      for (IncomingBlock& block : part) {
        if (block.granted && block.status.ok()) block.status = status;
      }
    }
  }

 private:
  // The part's bytes are taken from `frame` in any case.
  absl::Status WritePart(int layer, std::size_t block_bytes, ByteCursor& frame,
                         const Verify& verify, int first, std::span<IncomingBlock> part) {
    const std::size_t bytes = part.size() * block_bytes;
    auto slot = bytes <= slots_->slot_bytes() ? slots_->Take(absl::Now() + timeout_)
                                              : absl::InternalError("a block exceeds a frame");
    frame.Take(bytes, slot.ok() ? (*slot)->data() : nullptr);
    if (!slot.ok()) return Annotate(slot.status(), "pinned memory for a KV frame");
    for (std::size_t i = 0; i < part.size(); ++i) {
      IncomingBlock& block = part[i];
      if (!block.granted) continue;
      const std::byte* from = (*slot)->data() + i * block_bytes;
      if (verify != nullptr && !verify(first + static_cast<int>(i), {from, block_bytes})) {
        block.status = absl::DataLossError("damaged on the way");
        continue;
      }
      for (const BlockCopy& copy : block.copies) {
        const KvMemory::Rank& to = memory_.ranks[copy.destination_rank];
        BATON_RETURN_IF_ERROR((*slot)->Add(
            copy.destination_rank, from + copy.source_offset,
            BlockAt(to, layer, copy.destination_block) + copy.destination_offset, copy.bytes));
      }
    }
    const absl::Status copied = (*slot)->Copy(absl::Now() + timeout_);
    CheckEnded(copied);
    return copied;
  }

  const KvMemory memory_;  // a view
  const absl::Duration timeout_;
  const std::shared_ptr<PinnedSlots> slots_;
};

class DevicePool final : public PoolAccess {
 public:
  DevicePool(const KvMemory& memory, const DevicePoolOptions& options)
      : memory_(memory), options_(options) {
    for (const KvMemory::Rank& rank : memory_.ranks) {
      options_.frame_bytes = std::max(options_.frame_bytes, rank.block_bytes);
    }
  }
  std::unique_ptr<PoolReader> NewReader() override {
    return std::make_unique<Reader>(memory_, options_);
  }
  std::unique_ptr<PoolWriter> NewWriter() override {
    return std::make_unique<Writer>(memory_, options_);
  }

 private:
  const KvMemory memory_;  // a view
  DevicePoolOptions options_;
};

}  // namespace

std::shared_ptr<PoolAccess> MakeDevicePool(const KvMemory& memory,
                                           const DevicePoolOptions& options) {
  return std::make_shared<DevicePool>(memory, options);
}

}  // namespace baton::kvtransfer::cuda
