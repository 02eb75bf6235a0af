#include "cuda_emulation/nccl/transfer.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>

#include "cuda_emulation/nccl/controls.h"

namespace cuda_emulation::nccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kHeaderBytes = sizeof(MessageHeader);
constexpr std::size_t kPacedBytes = 64 << 10;  // a limited rate is kept in steps of this

// What the receiver answers to a message: all of it was taken, or it was not what was expected.
enum class Receipt : std::uint8_t { kTaken = 1, kMismatch = 2 };

struct Progress {
  Transfer transfer;
  std::size_t done = 0;  // header and data
  bool receipt = false;  // sent or received
  MessageHeader seen{};  // of an incoming message
  Clock::time_point not_before{};

  std::size_t total() const { return kHeaderBytes + transfer.header.bytes; }
  bool finished() const { return done == total() && receipt; }
};

std::string Describe(const MessageHeader& header) {
  return std::string(NameOf(header.kind)) + " of " + std::to_string(header.bytes) +
         " bytes, type " + std::to_string(header.type) + ", operation " +
         std::to_string(header.operation);
}

bool Same(const MessageHeader& a, const MessageHeader& b) {
  return a.kind == b.kind && a.type == b.type && a.operation == b.operation && a.bytes == b.bytes;
}

// Keeps the rate that the options ask for, over all peers of a communicator.
class Pacer {
 public:
  std::size_t Allowed(std::size_t bytes) const {
    return Rate() > 0 ? std::min(bytes, kPacedBytes) : bytes;
  }
  Clock::time_point AfterSending(std::size_t bytes) {
    if (Rate() == 0) return Clock::now();
    next_ = std::max(next_, Clock::now()) +
            std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * static_cast<double>(bytes) /
                                                               static_cast<double>(Rate())));
    return next_;
  }

 private:
  static std::int64_t Rate() { return GlobalNcclOptions().bytes_per_second; }
  Clock::time_point next_{};
};

class Exchanger {
 public:
  Exchanger(ncclComm* comm, const std::vector<Transfer>& transfers) : comm_(comm) {
    const auto begin =
        Clock::now() + std::chrono::microseconds(GlobalNcclOptions().delay_us.load());
    for (const Transfer& transfer : transfers) {
      all_.push_back({.transfer = transfer});
      if (transfer.outgoing) all_.back().not_before = begin;
    }
  }

  bool Run() {
    while (Gather()) {
      if (!Wait()) return false;
      for (std::size_t i = 0; i < active_.size(); ++i) {
        if (polled_[i + 1].revents != 0 && !Advance(*active_[i])) return false;
      }
    }
    return true;
  }

 private:
  // Picks the first unfinished message of every peer and direction. False: none is left.
  bool Gather() {
    active_.clear();
    polled_.assign(1, {comm_->wake.fd(), POLLIN, 0});
    earliest_.reset();
    const auto now = Clock::now();
    std::vector<bool> taken(static_cast<std::size_t>(comm_->size) * 2, false);
    for (Progress& one : all_) {
      const Transfer& transfer = one.transfer;
      if (one.finished() || taken[transfer.peer * 2 + (transfer.outgoing ? 1 : 0)]) continue;
      taken[transfer.peer * 2 + (transfer.outgoing ? 1 : 0)] = true;
      const ncclComm::Peer& peer = comm_->peers[transfer.peer];
      const bool writes = transfer.outgoing ? one.done < one.total() : one.done == one.total();
      short events = writes ? POLLOUT : POLLIN;
      if (transfer.outgoing) events |= POLLIN;  // a receipt, or the peer's end
      if (transfer.outgoing && writes && one.not_before > now) {
        earliest_ = std::min(earliest_.value_or(one.not_before), one.not_before);
        events = POLLIN;
      }
      polled_.push_back({(transfer.outgoing ? peer.out : peer.in).fd(), events, 0});
      active_.push_back(&one);
    }
    return !active_.empty();
  }

  bool Wait() {
    timespec timeout{};
    if (earliest_) {
      const auto left =
          std::max<std::int64_t>(0, std::chrono::nanoseconds(*earliest_ - Clock::now()).count());
      timeout = {left / 1'000'000'000, left % 1'000'000'000};
    }
    while (ppoll(polled_.data(), polled_.size(), earliest_ ? &timeout : nullptr, nullptr) < 0 &&
           errno == EINTR) {
    }
    return !comm_->stopped();
  }

  bool Advance(Progress& one) {
    return one.transfer.outgoing ? AdvanceOutgoing(one) : AdvanceIncoming(one);
  }

  bool AdvanceOutgoing(Progress& one) {
    const int fd = comm_->peers[one.transfer.peer].out.fd();
    Receipt receipt{};
    const std::ptrdiff_t answered = ReadSome(fd, &receipt, 1);
    if (answered < 0) return PeerIsGone(one.transfer.peer);
    if (answered > 0) {
      if (receipt == Receipt::kMismatch) {
        comm_->Fail(ncclInvalidUsage, "rank " + std::to_string(one.transfer.peer) +
                                          " expects something else than our " +
                                          Describe(one.transfer.header));
        return false;
      }
      one.receipt = true;
      return true;
    }
    if (one.done == one.total() || one.not_before > Clock::now()) return true;
    const bool head = one.done < kHeaderBytes;
    const char* from = head ? reinterpret_cast<const char*>(&one.transfer.header) + one.done
                            : one.transfer.data + (one.done - kHeaderBytes);
    const std::size_t left = (head ? kHeaderBytes : one.total()) - one.done;
    const std::ptrdiff_t written = WriteSome(fd, from, head ? left : pacer_.Allowed(left));
    if (written < 0) return PeerIsGone(one.transfer.peer);
    one.done += static_cast<std::size_t>(written);
    if (!head) one.not_before = pacer_.AfterSending(static_cast<std::size_t>(written));
    return true;
  }

  bool AdvanceIncoming(Progress& one) {
    const int fd = comm_->peers[one.transfer.peer].in.fd();
    if (one.done < one.total()) {
      const bool head = one.done < kHeaderBytes;
      char* to = head ? reinterpret_cast<char*>(&one.seen) + one.done
                      : one.transfer.data + (one.done - kHeaderBytes);
      const std::ptrdiff_t read = ReadSome(fd, to, (head ? kHeaderBytes : one.total()) - one.done);
      if (read < 0) return PeerIsGone(one.transfer.peer);
      one.done += static_cast<std::size_t>(read);
      if (head && one.done == kHeaderBytes && !Same(one.seen, one.transfer.header)) {
        const Receipt receipt = Receipt::kMismatch;
        WriteSome(fd, &receipt, 1);
        comm_->Fail(ncclInvalidUsage, "rank " + std::to_string(one.transfer.peer) + " gives a " +
                                          Describe(one.seen) + "; expected is a " +
                                          Describe(one.transfer.header));
        return false;
      }
    }
    if (one.done == one.total()) {
      const Receipt receipt = Receipt::kTaken;
      const std::ptrdiff_t written = WriteSome(fd, &receipt, 1);
      if (written < 0) return PeerIsGone(one.transfer.peer);
      one.receipt = written == 1;
    }
    return true;
  }

  bool PeerIsGone(int peer) {
    if (GlobalNcclOptions().hang_on_peer_death) {
      pollfd wake{comm_->wake.fd(), POLLIN, 0};
      while (!comm_->stopped()) poll(&wake, 1, -1);
    } else {
      comm_->Fail(ncclRemoteError, "rank " + std::to_string(peer) + " is gone");
    }
    return false;
  }

  ncclComm* const comm_;
  Pacer pacer_;
  std::vector<Progress> all_;
  std::vector<Progress*> active_;
  std::vector<pollfd> polled_;  // the wake event, then one of each active
  std::optional<Clock::time_point> earliest_;
};

}  // namespace

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kSend:
      return "send";
    case Kind::kAllReduce:
      return "all-reduce";
    case Kind::kAllGather:
      return "all-gather";
    case Kind::kReduceScatter:
      return "reduce-scatter";
    case Kind::kBroadcast:
      return "broadcast";
  }
  return "message of an unknown kind";
}

bool Exchange(ncclComm* comm, const std::vector<Transfer>& transfers) {
  return Exchanger(comm, transfers).Run();
}

}  // namespace cuda_emulation::nccl
