#include "kvtransfer/receive_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status.h"

namespace baton::kvtransfer {
namespace {

std::string Describe(const SourceBlock& at) {
  return absl::StrFormat("rank %d, layer %d, block %d", at.rank, at.layer, at.block);
}

}  // namespace

ReceiveSession::ReceiveSession(std::vector<std::int32_t> blocks, int num_tokens, Limits limits,
                               absl::Time now)
    : blocks_(std::move(blocks)),
      num_tokens_(num_tokens),
      limits_(limits),
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
                                     std::shared_ptr<const TransferPlan> plan,
                                     std::string_view transport, absl::Time now) {
  if (state_ == State::kFailed) return failure_;
  if (state_ != State::kReserved) {
    return absl::FailedPreconditionError("transfer was begun before; a ticket serves once");
  }
  const TransferShape shape = plan->ShapeOf(num_tokens_);
  if (begin.num_layers != shape.num_layers() || begin.num_blocks != shape.num_blocks) {
    Fail(absl::InvalidArgumentError(absl::StrFormat(
        "transfer does not fit its reservation: %d layers of %d blocks sent, %d of %d reserved",
        begin.num_layers, begin.num_blocks, shape.num_layers(), shape.num_blocks)));
    return failure_;
  }
  plan_ = std::move(plan);
  claimed_.emplace(shape);
  landed_.emplace(shape);
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

absl::Status ReceiveSession::StartCopy(LinkId link, const SourceBlock& at, absl::Time now,
                                       std::vector<BlockCopy>* copies) {
  BATON_RETURN_IF_ERROR(CheckSender(link));
  if (!claimed_->Contains(at)) {
    return absl::OutOfRangeError(absl::StrCat("block not expected: ", Describe(at)));
  }
  if (!claimed_->Mark(at)) {
    return absl::AlreadyExistsError(absl::StrCat("block came twice: ", Describe(at)));
  }
  ++num_copying_;
  Renew(now);
  if (report_.first_byte == absl::InfinitePast()) report_.first_byte = now;
  const std::size_t first = copies->size();
  plan_->AppendCopies(at.rank, at.layer, at.block, num_tokens_, copies);
  for (std::size_t i = first; i < copies->size(); ++i) {
    BlockCopy& copy = (*copies)[i];
    copy.destination_block = blocks_[copy.destination_block];
    BATON_CHECK(copy.destination_block >= 0, "a block without a destination was expected");
  }
  return absl::OkStatus();
}

void ReceiveSession::FinishCopy(const SourceBlock& at, const absl::Status& status) {
  BATON_CHECK(num_copying_ > 0, "a copy was finished that was not started");
  --num_copying_;
  if (state_ != State::kReceiving) return;
  if (!status.ok()) {
    Fail(Annotate(status, Describe(at)));
    return;
  }
  landed_->Mark(at);
  report_.bytes += static_cast<std::int64_t>(plan_->source_block_bytes(at.rank));
}

absl::Status ReceiveSession::OnFinish(LinkId link, const FinishTransfer& finish, absl::Time now) {
  BATON_RETURN_IF_ERROR(CheckSender(link));
  if (finish.num_blocks != landed_->num_marked() || !landed_->complete()) {
    const std::string first = landed_->complete() ? "none" : Describe(landed_->FirstMissing());
    Fail(absl::DataLossError(absl::StrFormat(
        "transfer finished with blocks missing: %d of %d landed, %d announced, first missing: %s",
        landed_->num_marked(), landed_->num_expected(), finish.num_blocks, first)));
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
