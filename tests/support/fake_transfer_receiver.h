#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "kvtransfer/transfer.h"

namespace baton {

// A receiver without senders: remembers its open reservations and lets the test say how each ends.
// Not thread-safe.
class FakeTransferReceiver final : public kvtransfer::TransferReceiver {
 public:
  struct Reservation {
    std::vector<std::int32_t> blocks;
    int num_tokens = 0;
  };

  TransferTicket Reserve(std::vector<std::int32_t> blocks, int num_tokens) override {
    TransferTicket ticket;
    ticket.transfer_id = next_id_++;
    ticket.worker_id = "d0";
    ticket.incarnation = 1;
    ticket.lease = absl::Seconds(10);
    ticket.num_tokens = num_tokens;
    ticket.blocks = blocks;
    open_[ticket.transfer_id] = {std::move(blocks), num_tokens};
    return ticket;
  }
  void Release(std::uint64_t transfer_id) override {
    if (open_.erase(transfer_id) > 0) released_.push_back(transfer_id);
  }
  int port() const override { return 1; }

  // The reservation's transfer completed or failed: nothing writes to its blocks any more. False
  // when it is not open, so that no callback may come.
  bool Close(std::uint64_t transfer_id) { return open_.erase(transfer_id) > 0; }

  // Reservations whose blocks may be written, by transfer id.
  const std::map<std::uint64_t, Reservation>& open() const { return open_; }
  // Those that Release ended, in order.
  const std::vector<std::uint64_t>& released() const { return released_; }

 private:
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Reservation> open_;
  std::vector<std::uint64_t> released_;
};

}  // namespace baton
