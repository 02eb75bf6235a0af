#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/block_ledger.h"
#include "kvtransfer/messages.h"
#include "kvtransfer/plan.h"
#include "kvtransfer/send_table.h"
#include "kvtransfer/transfer.h"

namespace baton::kvtransfer {

// The receiver's end of one transfer: a reservation and what has arrived for it. A state machine
// driven by messages and the time it is told.
//
//   kReserved   no sender yet; OnBegin -> kReceiving, bound to that link
//   kReceiving  blocks arrive in any order, each at most once
//   kCompleted  every block that the plan expects landed and the record came
//   kFailed     abort, lost link, expiry, damage or release; nothing more is taken
//
// A block is written between StartCopy and FinishCopy, by whoever called them. The outcome is
// settled() when it is known and no copy is under way: from then on nobody writes to the blocks.
// kCompleted is reached only through the ledger, so an incomplete prompt cannot be adopted.
// Not thread-safe.
class ReceiveSession {
 public:
  enum class State { kReserved, kReceiving, kCompleted, kFailed };
  struct Limits {
    absl::Duration lease;    // without a frame of the sender's
    absl::Duration max_age;  // of the reservation, however often it is renewed
  };

  // `blocks` is the ticket's table: where prompt blocks of our own block size go.
  ReceiveSession(std::vector<std::int32_t> blocks, int num_tokens, Limits limits, absl::Time now);

  // From link `link`; the status is why the frame was refused and is for the sender. Frames of a
  // link that the session is not bound to change nothing. `plan` is that between the two ends of
  // the link: from Begin on exactly the blocks of its shape are expected, all others refused.
  absl::Status OnBegin(LinkId link, const BeginTransfer& begin,
                       std::shared_ptr<const TransferPlan> plan, std::string_view transport,
                       absl::Time now);
  absl::Status OnRenew(LinkId link, absl::Time now);
  absl::Status OnFinish(LinkId link, const FinishTransfer& finish, absl::Time now);
  void OnAbort(LinkId link, const absl::Status& why);
  void OnLinkDown(LinkId link, const absl::Status& why);
  void OnTick(absl::Time now);
  void Fail(absl::Status why);

  // Claims one source block for writing and appends where its bytes go, with destination_block in
  // our pool. Refused when the session is not receiving from this link, the block is not expected,
  // or was claimed before.
  absl::Status StartCopy(LinkId link, const SourceBlock& at, absl::Time now,
                         std::vector<BlockCopy>* copies);
  // Ends a copy that StartCopy granted. Not OK: the bytes are not there or wrong, the transfer
  // fails.
  void FinishCopy(const SourceBlock& at, const absl::Status& status);

  State state() const { return state_; }
  bool over() const { return state_ == State::kCompleted || state_ == State::kFailed; }
  bool settled() const { return over() && num_copying_ == 0; }
  int num_copying() const { return num_copying_; }
  std::optional<LinkId> link() const { return link_; }
  const absl::Status& failure() const { return failure_; }  // requires kFailed
  const HandoffRecord& record() const { return *record_; }  // requires kCompleted
  const ReceiveReport& report() const { return report_; }   // requires kCompleted
  absl::Time deadline() const { return std::min(lease_until_, oldest_); }

 private:
  absl::Status CheckSender(LinkId link) const;
  void Renew(absl::Time now) { lease_until_ = now + limits_.lease; }

  const std::vector<std::int32_t> blocks_;
  const int num_tokens_;
  const Limits limits_;
  State state_ = State::kReserved;
  std::optional<LinkId> link_;
  std::shared_ptr<const TransferPlan> plan_;  // from Begin on, as the ledgers
  std::optional<BlockLedger> claimed_;
  std::optional<BlockLedger> landed_;
  int num_copying_ = 0;
  std::optional<HandoffRecord> record_;
  absl::Status failure_;
  ReceiveReport report_;
  // The lease runs from Begin on: until then the prompt waits its turn at the prefill worker, and
  // the router, which knows both, ends the reservation if that is lost.
  absl::Time lease_until_ = absl::InfiniteFuture();
  absl::Time oldest_;
};

}  // namespace baton::kvtransfer
