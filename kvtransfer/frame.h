#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kvtransfer/messages.h"

// Frames: the unit that transports carry, in order, in one gRPC message or one ring slot each.
//
//   offset size  field (little-endian)
//        0    4  magic "BKV1"
//        4    1  type
//        5    1  flags: bit 0 = a CRC32C per block follows the header
//        6    2  sender's rank
//        8    8  transfer id
//       16    8  receiver's incarnation
//       24    4  layer
//       28    4  first prompt block
//       32    4  number of blocks
//       36    4  bytes after the header
//       40    4  CRC32C of a control frame's body; zero in data frames
//       44    4  CRC32C of bytes 0..43
//
// Control frames have a protobuf body (proto/baton/v1/kv_transfer.proto) and zero block fields;
// data frames have num_blocks checksums of 4 bytes if flagged, then num_blocks * block_bytes, which
// are those of a block at the sender's rank.
namespace baton::kvtransfer {

inline constexpr std::size_t kFrameHeaderBytes = 48;
inline constexpr std::size_t kMaxControlBodyBytes = 64 * 1024;

struct FrameHeader {
  bool is_data = false;
  std::uint8_t type = 0;
  std::uint32_t body_bytes = 0;
  std::uint32_t body_checksum = 0;  // of control frames
  DataHeader data;                  // transfer id and incarnation are set for every type
};

// Header of a data frame whose bytes are `block_bytes` per block.
std::array<std::byte, kFrameHeaderBytes> EncodeDataHeader(const DataHeader& header,
                                                          std::size_t block_bytes);
// Whole control frame.
std::string EncodeMessage(const Message& message);

// What the CRC32C of block `index` of a frame starts from: it covers the block's identity
// (transfer, incarnation, rank, layer, prompt block) before its bytes, so that a misdirected block
// fails it too.
std::uint32_t BlockChecksumSeed(const DataHeader& header, int index);

// Checks magic, checksum, type and ranges of the first kFrameHeaderBytes bytes of a frame.
//   kDataLoss  not a frame of ours, or damaged; nothing on this link can be trusted any more
absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte> bytes);
// The body of a control frame. kDataLoss as above.
absl::StatusOr<Message> DecodeMessage(const FrameHeader& header, std::span<const std::byte> body);

}  // namespace baton::kvtransfer
