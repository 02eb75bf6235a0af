#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/frame_stream.h"
#include "kvtransfer/plan.h"
#include "kvtransfer/transfer.h"

// How transports whose bytes pass through host memory get at pools: in host memory by pointer
// (NewHostPoolAccess), in device memory through pinned staging (kvtransfer/cuda).
namespace baton::kvtransfer {

// Whole blocks as bytes in host memory.
struct HostBlocks {
  std::vector<std::span<const std::byte>> pieces;  // one per block, in order
  // Keeps `pieces` readable; null where they lie in the pool itself, whose owner keeps it.
  std::shared_ptr<const void> hold;
};

// The sender's side. One per link, called from one thread at a time; holds may be let go on any,
// and after the reader is gone.
class PoolReader {
 public:
  virtual ~PoolReader() = default;
  // The bytes of `blocks` of one layer and rank, which are final in memory. May wait for a copy
  // from the device, with a deadline; never for a peer.
  //   kResourceExhausted  this reader's staging memory is lent out: retry after a hold is let go
  //   kInternal           the device failed; nothing more can be read
  virtual absl::StatusOr<HostBlocks> Read(int rank, int layer,
                                          std::span<const std::int32_t> blocks) = 0;
};

// A block that came over a link, as the sender's rank has it.
struct IncomingBlock {
  bool granted = false;  // else its bytes are skipped
  // Where its bytes go, with destination_block in the pool: disjoint, or equal for ranks that hold
  // the same head. What no copy covers is dropped.
  std::span<const BlockCopy> copies;
  absl::Status status;  // set by whoever writes it, if granted
};

// The receiver's side. Thread-safe: links write at the same time, to different bytes.
class PoolWriter {
 public:
  // Whether the bytes of block `index`, in memory that no peer can change, are as they were sent.
  using Verify = std::function<bool(int index, std::span<const std::byte> bytes)>;
  virtual ~PoolWriter() = default;
  // Takes blocks.size() * block_bytes bytes from `frame` and puts them where they go in `layer`.
  // When it returns, the bytes are where engine and peers may read them, or `status` of the block
  // says why not: kDataLoss (`verify`, which may be null, said no), kInternal (the device failed).
  // May wait for a copy to the device, with a deadline; never for a peer.
  virtual void Write(int layer, std::size_t block_bytes, ByteCursor& frame, const Verify& verify,
                     std::span<IncomingBlock> blocks) = 0;
};

// What the location of a group's pools decides. Thread-safe; must outlive its readers and writers.
class PoolAccess {
 public:
  virtual ~PoolAccess() = default;
  virtual std::unique_ptr<PoolReader> NewReader() = 0;
  virtual std::unique_ptr<PoolWriter> NewWriter() = 0;
};

// For pools in host memory: readers lend the pool's own bytes, writers copy once, or twice where a
// block has to be taken apart and lies in several pieces or may be changed by the peer.
std::unique_ptr<PoolAccess> NewHostPoolAccess(KvMemory memory);

}  // namespace baton::kvtransfer
