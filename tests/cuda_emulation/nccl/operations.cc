#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cuda_emulation/nccl/group.h"
#include "cuda_emulation/nccl/reduce.h"
#include "cuda_emulation/runtime.h"

// Point-to-point messages and collectives.
namespace cuda_emulation::nccl {
namespace {

ncclResult_t CheckBuffer(ncclComm* comm, const void* data, std::size_t bytes) {
  if (bytes == 0 || DeviceOf(data, bytes) == comm->device) return ncclSuccess;
  comm->Refuse("a buffer of " + std::to_string(bytes) +
               " bytes does not lie in the memory of the communicator's device");
  return ncclInvalidArgument;
}

ncclResult_t CheckMessage(ncclComm* comm, const void* data, std::size_t count, ncclDataType_t type,
                          int peer) {
  if (const ncclResult_t usable = CheckUsable(comm); usable != ncclSuccess) return usable;
  if (SizeOf(type) == 0 || peer < 0 || peer >= comm->size) return ncclInvalidArgument;
  return CheckBuffer(comm, data, count * SizeOf(type));
}

MessageHeader HeaderOf(Kind kind, ncclDataType_t type, int operation, std::size_t bytes) {
  return {.kind = kind,
          .type = static_cast<std::uint32_t>(type),
          .operation = static_cast<std::uint32_t>(operation),
          .bytes = bytes};
}

// What every rank contributes to a collective, once it was exchanged.
class Contributions {
 public:
  Contributions(ncclComm* comm, const void* mine, MessageHeader header)
      : comm_(comm), mine_(mine), header_(header), received_(comm->size) {}

  void AddTransfers(std::vector<Transfer>* transfers) {
    for (int peer = 0; peer < comm_->size; ++peer) {
      if (peer == comm_->rank) continue;
      received_[peer].resize(header_.bytes);
      transfers->push_back(
          {peer, true, header_, const_cast<char*>(static_cast<const char*>(mine_))});
      transfers->push_back({peer, false, header_, received_[peer].data()});
    }
  }
  std::vector<const char*> InRankOrder(std::size_t offset = 0) const {
    std::vector<const char*> all;
    for (int rank = 0; rank < comm_->size; ++rank) {
      const char* from =
          rank == comm_->rank ? static_cast<const char*>(mine_) : received_[rank].data();
      all.push_back(from + offset);
    }
    return all;
  }

 private:
  ncclComm* const comm_;
  const void* const mine_;
  const MessageHeader header_;
  std::vector<std::vector<char>> received_;
};

using Finish = std::function<void(const Contributions&)>;

ncclResult_t Collective(ncclComm* comm, const void* mine, MessageHeader header, cudaStream_t stream,
                        Finish finish) {
  const auto contributions = std::make_shared<Contributions>(comm, mine, header);
  return Add(
      {.comm = comm,
       .stream = stream,
       .transfers = [contributions](std::vector<Transfer>* to) { contributions->AddTransfers(to); },
       .finish = [contributions, finish = std::move(finish)] { finish(*contributions); }});
}

ncclResult_t CheckReduction(ncclComm* comm, ncclDataType_t type, ncclRedOp_t operation) {
  if (const ncclResult_t usable = CheckUsable(comm); usable != ncclSuccess) return usable;
  return CanReduce(type, operation) ? ncclSuccess : ncclInvalidArgument;
}

thread_local std::vector<std::pair<const void*, std::size_t>> sent_to_self;

// A rank's message to itself needs both halves in one group, the send first.
ncclResult_t SendToSelf(ncclComm* comm, const void* data, std::size_t bytes) {
  if (!InGroup()) {
    comm->Refuse("a rank can send to itself in a group only");
    return ncclInvalidUsage;
  }
  sent_to_self.emplace_back(data, bytes);
  return ncclSuccess;
}

ncclResult_t ReceiveFromSelf(ncclComm* comm, void* to, std::size_t bytes, cudaStream_t stream) {
  if (sent_to_self.empty() || sent_to_self.front().second != bytes) {
    comm->Refuse("a rank receives from itself what it did not send before in this group");
    return ncclInvalidUsage;
  }
  const void* from = sent_to_self.front().first;
  sent_to_self.erase(sent_to_self.begin());
  return Add({.comm = comm,
              .stream = stream,
              .transfers = [=](std::vector<Transfer>*) { std::memmove(to, from, bytes); },
              .finish = nullptr});
}

}  // namespace
}  // namespace cuda_emulation::nccl

using namespace cuda_emulation::nccl;

#define BATON_NCCL_ENTER(comm, call)                 \
  BATON_NCCL_FAULT(call);                            \
  if ((comm) == nullptr) return ncclInvalidArgument; \
  const Entry entry(comm);                           \
  if (!entry.ok()) return ncclInvalidUsage

#define BATON_NCCL_RETURN_IF_ERROR(expression) \
  do {                                         \
    const ncclResult_t result = (expression);  \
    if (result != ncclSuccess) return result;  \
  } while (false)

extern "C" {

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  BATON_NCCL_ENTER(comm, ncclSend);
  BATON_NCCL_RETURN_IF_ERROR(CheckMessage(comm, data, count, type, peer));
  const MessageHeader header = HeaderOf(Kind::kSend, type, 0, count * SizeOf(type));
  if (peer == comm->rank) return SendToSelf(comm, data, header.bytes);
  char* from = const_cast<char*>(static_cast<const char*>(data));
  return Add({.comm = comm,
              .stream = stream,
              .transfers =
                  [=](std::vector<Transfer>* to) {
                    to->push_back({peer, true, header, from});
                  },
              .finish = nullptr});
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  BATON_NCCL_ENTER(comm, ncclRecv);
  BATON_NCCL_RETURN_IF_ERROR(CheckMessage(comm, data, count, type, peer));
  const MessageHeader header = HeaderOf(Kind::kSend, type, 0, count * SizeOf(type));
  if (peer == comm->rank) return ReceiveFromSelf(comm, data, header.bytes, stream);
  return Add({.comm = comm,
              .stream = stream,
              .transfers =
                  [=](std::vector<Transfer>* to) {
                    to->push_back({peer, false, header, static_cast<char*>(data)});
                  },
              .finish = nullptr});
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  BATON_NCCL_ENTER(comm, ncclAllReduce);
  BATON_NCCL_RETURN_IF_ERROR(CheckReduction(comm, type, operation));
  const std::size_t bytes = count * SizeOf(type);
  BATON_NCCL_RETURN_IF_ERROR(CheckBuffer(comm, in, bytes));
  BATON_NCCL_RETURN_IF_ERROR(CheckBuffer(comm, out, bytes));
  return Collective(
      comm, in, HeaderOf(Kind::kAllReduce, type, operation, bytes), stream,
      [=](const Contributions& all) { Reduce(type, operation, all.InRankOrder(), count, out); });
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  BATON_NCCL_ENTER(comm, ncclAllGather);
  BATON_NCCL_RETURN_IF_ERROR(CheckMessage(comm, in, count, type, comm->rank));
  const std::size_t bytes = count * SizeOf(type);
  BATON_NCCL_RETURN_IF_ERROR(CheckBuffer(comm, out, bytes * comm->size));
  return Collective(comm, in, HeaderOf(Kind::kAllGather, type, 0, bytes), stream,
                    [=](const Contributions& all) {
                      char* to = static_cast<char*>(out);
                      for (const char* from : all.InRankOrder()) {
                        std::memmove(to, from, bytes);
                        to += bytes;
                      }
                    });
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  BATON_NCCL_ENTER(comm, ncclReduceScatter);
  BATON_NCCL_RETURN_IF_ERROR(CheckReduction(comm, type, operation));
  const std::size_t bytes = count * SizeOf(type);
  BATON_NCCL_RETURN_IF_ERROR(CheckBuffer(comm, in, bytes * comm->size));
  BATON_NCCL_RETURN_IF_ERROR(CheckBuffer(comm, out, bytes));
  return Collective(comm, in, HeaderOf(Kind::kReduceScatter, type, operation, bytes * comm->size),
                    stream, [=](const Contributions& all) {
                      Reduce(type, operation, all.InRankOrder(comm->rank * bytes), count, out);
                    });
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  BATON_NCCL_ENTER(comm, ncclBroadcast);
  BATON_NCCL_RETURN_IF_ERROR(CheckMessage(comm, out, count, type, root));
  const bool is_root = comm->rank == root;
  const std::size_t bytes = count * SizeOf(type);
  if (is_root) BATON_NCCL_RETURN_IF_ERROR(CheckBuffer(comm, in, bytes));
  const MessageHeader header = HeaderOf(Kind::kBroadcast, type, root, bytes);
  return Add(
      {.comm = comm,
       .stream = stream,
       .transfers =
           [=](std::vector<Transfer>* to) {
             if (!is_root) to->push_back({root, false, header, static_cast<char*>(out)});
             for (int peer = 0; is_root && peer < comm->size; ++peer) {
               if (peer == root) continue;
               to->push_back({peer, true, header, const_cast<char*>(static_cast<const char*>(in))});
             }
           },
       .finish =
           [=] {
             if (is_root && in != out) std::memmove(out, in, bytes);
           }});
}

}  // extern "C"
