#include "cuda_emulation/nccl/bootstrap.h"

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace cuda_emulation::nccl {
namespace {

constexpr char kMagic[8] = {'e', 'm', 'u', 'n', 'c', 'c', 'l', '1'};

struct Arrival {
  std::uint64_t nonce;
  int rank;
  int size;
  std::uint16_t port;
};
// First bytes of a connection between two ranks: whose it is and what for.
enum class Use : std::int32_t { kData, kControl };
struct Introduction {
  std::int32_t rank;
  Use use;
};

void ServeRoot(Socket listener, UniqueId id) {
  const WakeEvent never;
  std::vector<Socket> sockets;
  std::vector<std::uint16_t> ports;
  std::size_t num_arrived = 0;
  while (sockets.empty() || num_arrived < sockets.size()) {
    Socket socket = Accept(listener, never);
    Arrival arrival{};
    if (!socket.open() || !ReadAll(socket, &arrival, sizeof(arrival), never) ||
        arrival.nonce != id.nonce || arrival.size < 1) {
      continue;
    }
    if (sockets.empty()) {
      sockets.resize(arrival.size);
      ports.resize(arrival.size);
    }
    // A second rank of the same number, or one of another size, is told by the connection's end.
    if (arrival.size != static_cast<int>(sockets.size()) || arrival.rank < 0 ||
        arrival.rank >= arrival.size || sockets[arrival.rank].open()) {
      continue;
    }
    ports[arrival.rank] = arrival.port;
    sockets[arrival.rank] = std::move(socket);
    ++num_arrived;
  }
  for (const Socket& socket : sockets) {
    WriteAll(socket, ports.data(), ports.size() * sizeof(ports[0]), never);
  }
}

bool DialPeer(ncclComm* comm, int peer, std::uint16_t port) {
  const auto introduce = [&](Socket& socket, Use use) {
    socket = Dial(port);
    const Introduction introduction{comm->rank, use};
    return socket.open() && WriteAll(socket, &introduction, sizeof(introduction), comm->wake);
  };
  return introduce(comm->peers[peer].out, Use::kData) &&
         (peer > comm->rank || introduce(comm->peers[peer].control, Use::kControl));
}

bool AcceptPeers(ncclComm* comm, const Socket& listener) {
  // From every peer its data connection, and from those of higher rank one for control.
  const int expected = (comm->size - 1) + (comm->size - 1 - comm->rank);
  for (int accepted = 0; accepted < expected; ++accepted) {
    Socket socket = Accept(listener, comm->wake);
    Introduction introduction{};
    if (!socket.open() || !ReadAll(socket, &introduction, sizeof(introduction), comm->wake) ||
        introduction.rank < 0 || introduction.rank >= comm->size) {
      return false;
    }
    ncclComm::Peer& peer = comm->peers[introduction.rank];
    Socket& place = introduction.use == Use::kData ? peer.in : peer.control;
    if (place.open()) return false;
    place = std::move(socket);
  }
  return true;
}

bool ConnectAll(ncclComm* comm, const UniqueId& id, std::string* why) {
  std::uint16_t port = 0;
  const Socket listener = Listen(&port);
  const Socket root = Dial(id.port);
  if (!listener.open() || !root.open()) {
    *why = "the maker of the unique id cannot be reached";
    return false;
  }
  const Arrival arrival{id.nonce, comm->rank, comm->size, port};
  std::vector<std::uint16_t> ports(comm->size);
  if (!WriteAll(root, &arrival, sizeof(arrival), comm->wake) ||
      !ReadAll(root, ports.data(), ports.size() * sizeof(ports[0]), comm->wake)) {
    *why = "broken off before all ranks had come";
    return false;
  }
  *why = "a rank is gone";
  for (int peer = 0; peer < comm->size; ++peer) {
    if (peer != comm->rank && !DialPeer(comm, peer, ports[peer])) return false;
  }
  return AcceptPeers(comm, listener);
}

}  // namespace

ncclResult_t MakeUniqueId(ncclUniqueId* out) {
  UniqueId id{};
  std::memcpy(id.magic, kMagic, sizeof(kMagic));
  std::random_device random;
  id.nonce = random() | std::uint64_t{random()} << 32;
  Socket listener = Listen(&id.port);
  if (!listener.open()) return ncclSystemError;
  std::thread(ServeRoot, std::move(listener), id).detach();
  *out = {};
  std::memcpy(out, &id, sizeof(id));
  return ncclSuccess;
}

std::optional<UniqueId> ReadUniqueId(const ncclUniqueId& id) {
  UniqueId read;
  std::memcpy(&read, &id, sizeof(read));
  if (std::memcmp(read.magic, kMagic, sizeof(kMagic)) != 0) return std::nullopt;
  return read;
}

ncclResult_t Bootstrap(ncclComm* comm, const UniqueId& id) {
  std::string why;
  if (!ConnectAll(comm, id, &why)) {
    comm->Fail(ncclRemoteError, "initialisation failed: " + why);
  } else if (!comm->TakeMemory()) {
    comm->Fail(ncclUnhandledCudaError, "initialisation failed: the device has no memory left");
  } else {
    int expected = ncclInProgress;
    comm->state.compare_exchange_strong(expected, ncclSuccess);
  }
  return comm->async_error();
}

}  // namespace cuda_emulation::nccl
