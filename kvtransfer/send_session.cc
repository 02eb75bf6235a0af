#include "kvtransfer/send_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton::kvtransfer {

namespace {

// The owner's puts hold for every rank.
TransferShape ForAllRanks(TransferShape shape) {
  shape.sends = {true};
  return shape;
}

}  // namespace

SendSession::SendSession(TransferTicket ticket, std::vector<std::int32_t> source_blocks,
                         std::shared_ptr<const TransferPlan> plan, Limits limits)
    : ticket_(std::move(ticket)),
      source_blocks_(std::move(source_blocks)),
      plan_(std::move(plan)),
      limits_(limits),
      shape_(plan_->ShapeOf(ticket_.num_tokens)),
      put_(ForAllRanks(shape_)) {
  report_.layers.resize(shape_.num_layers());
  for (int layer = 0; layer < shape_.num_layers(); ++layer) {
    report_.layers[layer] = {
        .layer = layer, .ready = absl::InfinitePast(), .sent = absl::InfinitePast()};
  }
  report_.first_byte = absl::InfinitePast();
  report_.completed = absl::InfinitePast();
  report_.acknowledged = absl::InfinitePast();
}

absl::Status SendSession::CheckTables(const TransferTicket& ticket,
                                      const std::vector<std::int32_t>& source_blocks,
                                      const KvCut& source, int num_source_blocks) {
  if (ticket.num_tokens <= 0 ||
      static_cast<std::size_t>(ticket.cut.BlocksFor(ticket.num_tokens)) != ticket.blocks.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("ticket does not fit: %d tokens in %d blocks of %d tokens",
                        ticket.num_tokens, ticket.blocks.size(), ticket.cut.block_size));
  }
  if (static_cast<std::size_t>(source.BlocksFor(ticket.num_tokens)) != source_blocks.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "source blocks do not fit the ticket: %d blocks of %d tokens, the ticket is for %d tokens",
        source_blocks.size(), source.block_size, ticket.num_tokens));
  }
  for (const std::int32_t block : source_blocks) {
    if (block < 0 || block >= num_source_blocks) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "source block out of range: %d, the pool has %d", block, num_source_blocks));
    }
  }
  return absl::OkStatus();
}

void SendSession::Put(int layer, int first_block, int last_block, absl::Time now) {
  if (!open() || first_block == last_block) return;
  if (record_.has_value() || layer < 0 || layer >= put_.num_layers() || first_block < 0 ||
      first_block > last_block || last_block > put_.num_blocks()) {
    Fail(absl::InternalError(absl::StrFormat(
             "layer put out of range or after Complete: layer %d of %d, blocks [%d, %d) of %d",
             layer, put_.num_layers(), first_block, last_block, put_.num_blocks())),
         now);
    return;
  }
  report_.layers[layer].ready = now;
  first_block = std::max(first_block, put_.first_block(layer));
  if (first_block >= last_block) return;
  for (int block = first_block; block < last_block; ++block) {
    if (!put_.Mark({.rank = 0, .layer = layer, .block = block})) {
      Fail(absl::InternalError(
               absl::StrFormat("block put twice: layer %d, prompt block %d", layer, block)),
           now);
      return;
    }
  }
  for (int rank = 0; rank < static_cast<int>(shape_.sends.size()); ++rank) {
    if (!shape_.sends[rank]) continue;
    pending_.push_back(
        {.rank = rank, .layer = layer, .first_block = first_block, .last_block = last_block});
  }
}

void SendSession::Complete(HandoffRecord record, absl::Time now) {
  if (!open()) return;
  if (record_.has_value() || !put_.complete()) {
    const std::string what =
        record_.has_value()
            ? std::string("completed twice")
            : absl::StrFormat(
                  "completed with blocks missing: %d of %d were put, first missing is "
                  "layer %d, prompt block %d",
                  put_.num_marked(), put_.num_expected(), put_.FirstMissing().layer,
                  put_.FirstMissing().block);
    Fail(absl::InternalError(what), now);
    return;
  }
  record_ = std::move(record);
  report_.completed = now;
  ack_deadline_ = now + limits_.ack_timeout;
}

void SendSession::Fail(absl::Status why, absl::Time now) {
  if (!open()) return;
  if (why.ok()) why = absl::InternalError("transfer failed without a reason");
  Close(std::move(why), now);
}

void SendSession::Close(absl::Status outcome, absl::Time now) {
  state_ = State::kClosing;
  outcome_ = std::move(outcome);
  pending_.clear();
  release_deadline_ = now + limits_.release_grace;
  CloseIfSilent();
}

void SendSession::CloseIfSilent() {
  if (state_ == State::kClosing && num_reading_ == 0) state_ = State::kClosed;
}

void SendSession::OnLinkUp(std::string_view transport, absl::Time now) {
  if (state_ != State::kWaitingForLink) return;
  state_ = State::kSending;
  report_.transport = std::string(transport);
  lease_until_ = now + ticket_.lease;
  renew_at_ = now + ticket_.lease / 3;
}

void SendSession::OnAcknowledged(absl::Time now) {
  if (!open()) return;
  if (state_ != State::kFinishing) {
    Fail(absl::InternalError("receiver acknowledged a transfer that was not finished"), now);
    return;
  }
  report_.acknowledged = now;
  Close(absl::OkStatus(), now);
}

void SendSession::OnRenewed(absl::Time now) {
  if (!open() || !renewal_sent_.has_value()) return;
  static_cast<void>(now);
  lease_until_ = *renewal_sent_ + ticket_.lease;
  renew_at_ = *renewal_sent_ + ticket_.lease / 3;
  renewal_sent_.reset();
}

void SendSession::OnReleased(absl::Time now) {
  static_cast<void>(now);
  BATON_CHECK(num_reading_ > 0, "a range was released that was not handed out");
  --num_reading_;
  CloseIfSilent();
}

void SendSession::OnTick(absl::Time now) {
  if (!open()) return;
  if (now >= ack_deadline_) {
    Fail(absl::DeadlineExceededError(absl::StrFormat("no acknowledgement within %s of completion",
                                                     absl::FormatDuration(limits_.ack_timeout))),
         now);
  } else if (state_ == State::kSending && now >= lease_until_) {
    Fail(absl::UnavailableError(absl::StrFormat("receiver has not confirmed the lease for %s",
                                                absl::FormatDuration(ticket_.lease))),
         now);
  }
}

bool SendSession::RenewalDue(absl::Time now) const {
  return begun_ && !finish_handed_out_ && !renewal_sent_.has_value() && now >= renew_at_;
}

int SendSession::MaxBlocks(int rank) const {
  const std::size_t fitting = limits_.max_put_bytes / plan_->source_block_bytes(rank);
  return static_cast<int>(std::clamp<std::size_t>(fitting, 1, kMaxBlocksPerFrame));
}

std::optional<SendSession::Item> SendSession::Next(absl::Time now) {
  if (state_ != State::kSending) return std::nullopt;
  if (!begun_) {
    begun_ = true;
    return BeginTransfer{.num_layers = put_.num_layers(), .num_blocks = put_.num_blocks()};
  }
  if (RenewalDue(now)) {
    renewal_sent_ = now;
    return RenewLease{};
  }
  if (!pending_.empty()) {
    PutRange& front = pending_.front();
    PutRange range = front;
    range.last_block = std::min(front.last_block, range.first_block + MaxBlocks(range.rank));
    front.first_block = range.last_block;
    if (front.first_block == front.last_block) pending_.pop_front();
    ++num_reading_;
    return range;
  }
  if (record_.has_value() && !finish_handed_out_) {
    finish_handed_out_ = true;
    state_ = State::kFinishing;
    return FinishTransfer{.num_blocks = put_.num_marked() * shape_.num_senders(),
                          .record = *record_};
  }
  return std::nullopt;
}

void SendSession::OnAccepted(const PutRange& range, absl::Time offered) {
  LayerMark& mark = report_.layers[range.layer];
  if (report_.first_byte == absl::InfinitePast()) report_.first_byte = offered;
  if (mark.sent == absl::InfinitePast()) mark.sent = offered;
  report_.bytes += static_cast<std::int64_t>(range.last_block - range.first_block) *
                   static_cast<std::int64_t>(plan_->source_block_bytes(range.rank));
}

void SendSession::TakeBack(const PutRange& range, absl::Time now) {
  if (open()) pending_.push_front(range);
  OnReleased(now);
}

void SendSession::TakeBackControl(const Item& item) {
  if (!open()) return;
  if (std::holds_alternative<BeginTransfer>(item)) {
    begun_ = false;
  } else if (std::holds_alternative<RenewLease>(item)) {
    renewal_sent_.reset();
  } else if (std::holds_alternative<FinishTransfer>(item)) {
    finish_handed_out_ = false;
    state_ = State::kSending;
  }
}

absl::Time SendSession::NextDeadline() const {
  switch (state_) {
    case State::kWaitingForLink:
      return ack_deadline_;
    case State::kSending:
      return std::min({ack_deadline_, lease_until_,
                       renewal_sent_.has_value() || !begun_ ? absl::InfiniteFuture() : renew_at_});
    case State::kFinishing:
      return ack_deadline_;
    case State::kClosing:
      return release_deadline_;
    case State::kClosed:
      break;
  }
  return absl::InfiniteFuture();
}

std::vector<std::int32_t> SendSession::BlocksOf(const PutRange& range) const {
  return {source_blocks_.begin() + range.first_block, source_blocks_.begin() + range.last_block};
}

}  // namespace baton::kvtransfer
