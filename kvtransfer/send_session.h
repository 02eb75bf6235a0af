#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/transfer_ticket.h"
#include "kvtransfer/block_ledger.h"
#include "kvtransfer/messages.h"
#include "kvtransfer/plan.h"
#include "kvtransfer/transfer.h"

namespace baton::kvtransfer {

// Blocks of one layer of one rank to hand to the transport, at most a frame's worth.
struct PutRange {
  int rank = 0;
  int layer = 0;
  int first_block = 0;
  int last_block = 0;
};

// The sender's end of one transfer: a state machine driven by messages and the time it is told.
//
//   kWaitingForLink  puts are gathered; OnLinkUp -> kSending
//   kSending         Begin, then ranges in the order they were put, renewals in between
//   kFinishing       everything and the record were handed out; waits for Acknowledged
//   kClosing         the outcome is known; waits until the transport reads no source block
//   kClosed          outcome() may be told to the owner
//
// Any failure in the first three states leads to kClosing with that status; later ones are ignored,
// so there is one outcome. Finish is never handed out before every block of the transfer's shape
// was. The owner puts a layer's blocks once for all ranks; those that no row after the prompt sees
// are put like the others and dropped.
// Not thread-safe.
class SendSession {
 public:
  enum class State { kWaitingForLink, kSending, kFinishing, kClosing, kClosed };
  struct Limits {
    absl::Duration ack_timeout;     // from Complete to Acknowledged
    absl::Duration release_grace;   // from the outcome until the link has to be broken
    std::size_t max_put_bytes = 1;  // a frame has as many blocks as fit, at least one
  };
  // What to hand to the transport next. A range must be answered by OnReleased or TakeBack.
  using Item = std::variant<BeginTransfer, PutRange, RenewLease, FinishTransfer>;

  // Requires CheckTables() to be OK.
  SendSession(TransferTicket ticket, std::vector<std::int32_t> source_blocks,
              std::shared_ptr<const TransferPlan> plan, Limits limits);
  // kInvalidArgument when the tables and the ticket do not fit together.
  static absl::Status CheckTables(const TransferTicket& ticket,
                                  const std::vector<std::int32_t>& source_blocks,
                                  const KvCut& source, int num_source_blocks);

  // From the owner. A range out of bounds or put twice, or a Complete before every pair was put,
  // fails the transfer with kInternal: the owner's bookkeeping is wrong. Ignored once closing.
  void Put(int layer, int first_block, int last_block, absl::Time now);
  void Complete(HandoffRecord record, absl::Time now);
  // From anyone: the owner's abort, a lost link, the receiver's refusal.
  void Fail(absl::Status why, absl::Time now);

  // From the link.
  void OnLinkUp(std::string_view transport, absl::Time now);
  void OnAcknowledged(absl::Time now);
  void OnRenewed(absl::Time now);
  void OnReleased(absl::Time now);  // the transport no longer reads one handed-out range
  void OnTick(absl::Time now);

  // The next item, or nothing to send now. Ranges count as being read from here on.
  std::optional<Item> Next(absl::Time now);
  // The transport took `range`, offered to it at `offered`.
  void OnAccepted(const PutRange& range, absl::Time offered);
  // The transport had no room for `range`: it is next again, unless the session is closing.
  void TakeBack(const PutRange& range, absl::Time now);
  void TakeBackControl(const Item& item);

  State state() const { return state_; }
  bool open() const { return state_ < State::kClosing; }
  bool has_begun() const { return begun_; }
  // True when the transport held on to source blocks for too long after the outcome.
  bool must_break_link(absl::Time now) const {
    return state_ == State::kClosing && now >= release_deadline_;
  }
  absl::Time NextDeadline() const;
  const absl::Status& outcome() const { return outcome_; }  // requires kClosing or kClosed
  const SendReport& report() const { return report_; }
  const TransferTicket& ticket() const { return ticket_; }
  int num_reading() const { return num_reading_; }
  const std::shared_ptr<const TransferPlan>& plan() const { return plan_; }
  // Where the blocks of a range lie in the pool. Requires a range from Next().
  std::vector<std::int32_t> BlocksOf(const PutRange& range) const;

 private:
  void Close(absl::Status outcome, absl::Time now);
  void CloseIfSilent();
  bool RenewalDue(absl::Time now) const;
  int MaxBlocks(int rank) const;  // of a frame

  const TransferTicket ticket_;
  const std::vector<std::int32_t> source_blocks_;
  const std::shared_ptr<const TransferPlan> plan_;
  const Limits limits_;

  State state_ = State::kWaitingForLink;
  absl::Status outcome_;
  SendReport report_;
  const TransferShape shape_;
  BlockLedger put_;               // by the owner, for all ranks at once
  std::deque<PutRange> pending_;  // put, not yet handed out; bounded by the shape
  std::optional<HandoffRecord> record_;
  bool begun_ = false;
  bool finish_handed_out_ = false;
  int num_reading_ = 0;  // ranges the transport may be reading
  absl::Time ack_deadline_ = absl::InfiniteFuture();
  absl::Time release_deadline_ = absl::InfiniteFuture();
  // The lease as the receiver has confirmed it; it counts from when the renewal was handed out.
  absl::Time lease_until_ = absl::InfiniteFuture();
  absl::Time renew_at_ = absl::InfiniteFuture();
  std::optional<absl::Time> renewal_sent_;
};

}  // namespace baton::kvtransfer
