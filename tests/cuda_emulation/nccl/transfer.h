#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda_emulation/nccl/communicator.h"

namespace cuda_emulation::nccl {

enum class Kind : std::uint32_t { kSend, kAllReduce, kAllGather, kReduceScatter, kBroadcast };
const char* NameOf(Kind kind);

// What heads a message on a connection. The receiver compares it with what it expects, so that a
// mismatch, which hangs or corrupts on a device, becomes an error that names both sides.
struct MessageHeader {
  Kind kind;
  std::uint32_t type;           // ncclDataType_t
  std::uint32_t operation = 0;  // ncclRedOp_t, or the root of a broadcast
  std::uint32_t reserved = 0;
  std::uint64_t bytes;
};

// One message to or from a peer, which is not the communicator's own rank.
struct Transfer {
  int peer;
  bool outgoing;
  MessageHeader header;
  char* data;  // [header.bytes]
};

// Moves all messages together, those of one peer and direction in order. A send ends when its
// receiver has taken the last byte. False: the communicator was stopped or has failed.
bool Exchange(ncclComm* comm, const std::vector<Transfer>& transfers);

}  // namespace cuda_emulation::nccl
