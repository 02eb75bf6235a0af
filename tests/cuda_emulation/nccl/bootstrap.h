#pragma once
#include <nccl.h>

#include <cstdint>
#include <optional>

#include "cuda_emulation/nccl/communicator.h"

// How the ranks of a communicator find each other: the maker of the unique id listens, tells every
// rank the others' ports, and the ranks connect to each other.
namespace cuda_emulation::nccl {

struct UniqueId {
  char magic[8];
  std::uint16_t port;
  std::uint64_t nonce;
};
static_assert(sizeof(UniqueId) <= sizeof(ncclUniqueId));

// Starts to listen, on a thread that ends when all ranks have come (or with the process).
ncclResult_t MakeUniqueId(ncclUniqueId* out);
std::optional<UniqueId> ReadUniqueId(const ncclUniqueId& id);

// Connects `comm` to all its peers and takes its device memory; sets its state. Ended by its wake
// event.
ncclResult_t Bootstrap(ncclComm* comm, const UniqueId& id);

}  // namespace cuda_emulation::nccl
