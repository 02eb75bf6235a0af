#pragma once
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda_emulation/nccl/socket.h"

// What stands behind ncclComm_t. The calls of a communicator come from one thread at a time, as the
// real library demands; its operations run on threads of streams, in the order they were submitted.
struct ncclComm {
  // Connections to one peer. `out` carries our messages and, backwards, the peer's receipts; `in`
  // is the peer's `out`. `control` serves splits, also when the others stopped in mid-message.
  struct Peer {
    cuda_emulation::nccl::Socket out, in, control;
  };

  ncclComm(int its_rank, int num_ranks, bool blocks, int channels);
  ~ncclComm();

  // Takes device memory as the real library does. False: there is none.
  bool TakeMemory();
  // Keeps the first failure; GetAsyncError tells it from now on.
  void Fail(ncclResult_t result, std::string why);
  void Refuse(std::string why);  // sets the last error only
  ncclResult_t async_error() const { return static_cast<ncclResult_t>(state.load()); }
  bool stopped() const { return aborted || revoked; }

  // Operations wait for their turn between these; false: stopped meanwhile.
  std::uint64_t NewTicket();
  bool AwaitTurn(std::uint64_t ticket);
  void EndTurn();
  void Stop();       // wakes whatever runs
  void AwaitIdle();  // until every submitted operation has ended

  const int rank;
  const int size;
  const bool blocking;
  const int max_channels;
  int device = 0;
  std::vector<Peer> peers;
  cuda_emulation::nccl::WakeEvent wake;  // raised once aborted or revoked
  std::atomic<bool> aborted{false};
  std::atomic<bool> revoked{false};
  std::atomic<bool> finalized{false};
  std::atomic<bool> entered{false};    // a call is under way
  std::atomic<bool> connected{false};  // the first operation connects lazily
  std::atomic<int> connect_polls{0};   // calls of GetAsyncError that still tell ncclInProgress
  std::atomic<int> state{ncclInProgress};
  std::thread background;  // initialisation, then finalisation or revocation
  std::set<void*> registered;
  // Held by every graph that an operation was captured into.
  std::shared_ptr<int> graph_token = std::make_shared<int>(0);

  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t submitted = 0;
  std::uint64_t ended = 0;
  std::string last_error;
  std::int64_t memory_bytes = 0;
};

namespace cuda_emulation::nccl {

// Two threads must not be inside the library with one communicator: the second is refused.
class Entry {
 public:
  explicit Entry(ncclComm* comm);
  ~Entry();
  bool ok() const { return ok_; }

 private:
  ncclComm* const comm_;
  const bool ok_;
};

// Whether operations may be submitted; ncclSuccess, or what to return.
ncclResult_t CheckUsable(ncclComm* comm);

// What a fault injected for `call` makes it return; ncclSuccess: none.
ncclResult_t Fault(const char* call);

}  // namespace cuda_emulation::nccl

#define BATON_NCCL_FAULT(call)                                       \
  do {                                                               \
    const ncclResult_t fault = ::cuda_emulation::nccl::Fault(#call); \
    if (fault != ncclSuccess) return fault;                          \
  } while (false)
