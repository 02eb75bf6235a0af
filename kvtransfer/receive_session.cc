#include "kvtransfer/receive_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status.h"

namespace baton::kvtransfer {

ReceiveSession::ReceiveSession(std::vector<std::int32_t> blocks,
                               const std::vector<int>& first_blocks, std::size_t block_bytes,
                               Limits limits, absl::Time now)
    : blocks_(std::move(blocks)),
      block_bytes_(block_bytes),
      limits_(limits),
      claimed_(first_blocks, static_cast<int>(blocks_.size())),
      landed_(first_blocks, static_cast<int>(blocks_.size())),
      oldest_(now + limits.max_age) {
  report_.first_byte = absl::InfinitePast();
  report_.completed = absl::InfinitePast();
}

absl::Status ReceiveSession::CheckSender(LinkId link) const {
  if (state_ == State::kFailed) return failure_;
  if (state_ != State::kReceiving || link_ != link) {
    return absl::FailedPreconditionError(state_ == State::kCompleted
                                             ? "transfer is already complete"
                                             : "transfer was not begun on this link");
  }
  return absl::OkStatus();
}

absl::Status ReceiveSession::OnBegin(LinkId link, const BeginTransfer& begin,
                                     std::string_view transport, absl::Time now) {
  if (state_ == State::kFailed) return failure_;
  if (state_ != State::kReserved) {
    return absl::FailedPreconditionError("transfer was begun before; a ticket serves once");
  }
  if (begin.num_layers != landed_.num_layers() || begin.num_blocks != landed_.num_blocks()) {
    Fail(absl::InvalidArgumentError(absl::StrFormat(
        "transfer does not fit its reservation: %d layers of %d blocks sent, %d of %d reserved",
        begin.num_layers, begin.num_blocks, landed_.num_layers(), landed_.num_blocks())));
    return failure_;
  }
  state_ = State::kReceiving;
  link_ = link;
  report_.transport = std::string(transport);
  Renew(now);
  return absl::OkStatus();
}

absl::Status ReceiveSession::OnRenew(LinkId link, absl::Time now) {
  BATON_RETURN_IF_ERROR(CheckSender(link));
  Renew(now);
  return absl::OkStatus();
}

absl::StatusOr<std::int32_t> ReceiveSession::StartCopy(LinkId link, int layer, int block,
                                                       absl::Time now) {
  BATON_RETURN_IF_ERROR(CheckSender(link));
  if (!claimed_.Contains(layer, block)) {
    return absl::OutOfRangeError(
        absl::StrFormat("block not expected: layer %d, block %d", layer, block));
  }
  if (!claimed_.Mark(layer, block)) {
    return absl::AlreadyExistsError(
        absl::StrFormat("block came twice: layer %d, block %d", layer, block));
  }
  ++num_copying_;
  Renew(now);
  if (report_.first_byte == absl::InfinitePast()) report_.first_byte = now;
  return blocks_[block];
}

void ReceiveSession::FinishCopy(int layer, int block, bool intact) {
  BATON_CHECK(num_copying_ > 0, "a copy was finished that was not started");
  --num_copying_;
  if (state_ != State::kReceiving) return;
  if (!intact) {
    Fail(absl::DataLossError(
        absl::StrFormat("block damaged on the way: layer %d, block %d", layer, block)));
    return;
  }
  landed_.Mark(layer, block);
  report_.bytes += static_cast<std::int64_t>(block_bytes_);
}

absl::Status ReceiveSession::OnFinish(LinkId link, const FinishTransfer& finish, absl::Time now) {
  BATON_RETURN_IF_ERROR(CheckSender(link));
  if (finish.num_blocks != landed_.num_marked() || !landed_.complete()) {
    std::string first = "none";
    if (!landed_.complete()) {
      const auto [layer, block] = landed_.FirstMissing();
      first = absl::StrFormat("layer %d, block %d", layer, block);
    }
    Fail(absl::DataLossError(absl::StrFormat(
        "transfer finished with blocks missing: %d of %d landed, %d announced, first missing: %s",
        landed_.num_marked(), landed_.num_pairs(), finish.num_blocks, first)));
    return failure_;
  }
  record_ = finish.record;
  report_.completed = now;
  state_ = State::kCompleted;
  return absl::OkStatus();
}

void ReceiveSession::OnAbort(LinkId link, const absl::Status& why) {
  // Before Begin any sender that holds the ticket may give it up.
  if (state_ == State::kReserved || link_ == link) {
    Fail(Annotate(why.ok() ? absl::CancelledError("without a reason") : why,
                  "aborted by the sender"));
  }
}

void ReceiveSession::OnLinkDown(LinkId link, const absl::Status& why) {
  if (link_ == link) Fail(why);
}

void ReceiveSession::OnTick(absl::Time now) {
  if (over()) return;
  if (now >= oldest_) {
    Fail(absl::DeadlineExceededError(
        absl::StrFormat("reservation older than %s%s", absl::FormatDuration(limits_.max_age),
                        state_ == State::kReserved ? ", and no sender began" : "")));
  } else if (now >= lease_until_) {
    Fail(absl::DeadlineExceededError(
        absl::StrFormat("lease expired: nothing heard from the sender for %s",
                        absl::FormatDuration(limits_.lease))));
  }
}

void ReceiveSession::Fail(absl::Status why) {
  if (over()) return;
  failure_ = std::move(why);
  state_ = State::kFailed;
}

}  // namespace baton::kvtransfer
