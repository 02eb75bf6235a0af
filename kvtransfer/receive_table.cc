#include "kvtransfer/receive_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "kvtransfer/fingerprint.h"
#include "kvtransfer/plan.h"

namespace baton::kvtransfer {
namespace {

SourceBlock BlockAt(const DataHeader& header, int index) {
  return {.rank = header.rank, .layer = header.layer, .block = header.first_block + index};
}

}  // namespace

ReceiveTable::ReceiveTable(Options options) : options_(std::move(options)) {}

TransferTicket ReceiveTable::Reserve(std::vector<std::int32_t> blocks, int num_tokens,
                                     absl::Time now) {
  const std::uint64_t id = next_id_++;
  TransferTicket ticket{.transfer_id = id,
                        .worker_id = options_.worker_id,
                        .incarnation = options_.incarnation,
                        .lease = options_.limits.lease,
                        .address = {},
                        .num_tokens = num_tokens,
                        .blocks = blocks,
                        .fingerprint = options_.fingerprint,
                        .cut = options_.cut};
  sessions_.emplace(
      id, Entry{.session = ReceiveSession(std::move(blocks), num_tokens, options_.limits, now)});
  return ticket;
}

void ReceiveTable::Release(std::uint64_t transfer_id) {
  std::erase_if(done_, [&](const ReceiveDone& done) { return done.transfer_id == transfer_id; });
  const auto it = sessions_.find(transfer_id);
  if (it == sessions_.end()) return;
  it->second.released = true;
  it->second.session.Fail(absl::CancelledError("released by the decode worker"));
  Settle(transfer_id);
}

int ReceiveTable::num_copying(std::uint64_t transfer_id) const {
  const auto it = sessions_.find(transfer_id);
  return it == sessions_.end() ? 0 : it->second.session.num_copying();
}

absl::Status ReceiveTable::CheckHello(const Hello& hello) const {
  if (hello.protocol_version != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "KV transfer protocols differ: version %d at %s, %d at %s; run the same release",
        hello.protocol_version, hello.worker_id, kProtocolVersion, options_.worker_id));
  }
  if (hello.expected_worker_id != options_.worker_id ||
      hello.expected_incarnation != options_.incarnation) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "ticket of another worker: it names %s, incarnation %d; this is %s, incarnation %d",
        hello.expected_worker_id, hello.expected_incarnation, options_.worker_id,
        options_.incarnation));
  }
  return CheckSides({hello.worker_id, hello.fingerprint, hello.cut},
                    {options_.worker_id, options_.fingerprint, options_.cut});
}

void ReceiveTable::OnLinkUp(LinkId link, const Hello& hello, std::string_view transport) {
  links_[link] = {
      .peer_name = hello.worker_id,
      .transport = std::string(transport),
      .plan = std::make_shared<const TransferPlan>(options_.fingerprint, hello.cut, options_.cut)};
}

std::shared_ptr<const TransferPlan> ReceiveTable::PlanOf(LinkId link) const {
  const auto it = links_.find(link);
  return it == links_.end() ? nullptr : it->second.plan;
}

void ReceiveTable::OnLinkDown(LinkId link, const absl::Status& why) {
  const auto it = links_.find(link);
  if (it == links_.end()) return;
  const absl::Status annotated =
      Annotate(absl::UnavailableError(why.ok() ? "closed by the sender" : why.message()),
               absl::StrCat("link from ", it->second.peer_name));
  links_.erase(it);
  std::vector<std::uint64_t> ids;
  for (auto& [id, entry] : sessions_) {
    entry.session.OnLinkDown(link, annotated);
    ids.push_back(id);
  }
  for (const std::uint64_t id : ids) Settle(id);
}

absl::Status ReceiveTable::Apply(LinkId link, const Link& from, Entry& entry,
                                 const Message& message, absl::Time now) {
  ReceiveSession& session = entry.session;
  if (const auto* begin = std::get_if<BeginTransfer>(&message.body)) {
    return session.OnBegin(link, *begin, from.plan, from.transport, now);
  }
  if (const auto* finish = std::get_if<FinishTransfer>(&message.body)) {
    BATON_RETURN_IF_ERROR(session.OnFinish(link, *finish, now));
    entry.sender_told = true;
    ReplyTo(link, message.transfer_id, Acknowledged{});
    return absl::OkStatus();
  }
  if (std::holds_alternative<RenewLease>(message.body)) {
    BATON_RETURN_IF_ERROR(session.OnRenew(link, now));
    ReplyTo(link, message.transfer_id, LeaseRenewed{});
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("message of a kind that senders do not send");
}

void ReceiveTable::OnMessage(LinkId link, const Message& message, absl::Time now) {
  const auto from = links_.find(link);
  if (from == links_.end()) return;
  const bool ours = message.incarnation == options_.incarnation;
  const auto it = ours ? sessions_.find(message.transfer_id) : sessions_.end();
  const bool known = it != sessions_.end() && !it->second.released;
  if (const auto* abort = std::get_if<AbortTransfer>(&message.body)) {
    if (!known) return;
    if (it->second.session.link().value_or(link) == link) it->second.sender_told = true;
    it->second.session.OnAbort(link, abort->why);
    Settle(message.transfer_id);
    return;
  }
  absl::Status status = absl::FailedPreconditionError(
      ours ? "no such reservation: released, expired or never made"
           : absl::StrFormat("ticket of a former incarnation: it names %d, this is %d",
                             message.incarnation, options_.incarnation));
  if (known) status = Apply(link, from->second, it->second, message, now);
  if (!status.ok()) {
    // Answered with the sender's own incarnation, by which it knows its transfer.
    replies_.push_back({.link = link,
                        .message = {.transfer_id = message.transfer_id,
                                    .incarnation = message.incarnation,
                                    .body = Refused{.why = status}}});
    if (known && it->second.session.link() == link) {
      it->second.sender_told = true;
      it->second.session.Fail(status);  // the sender gives up on a refusal; so do we, at once
    }
  }
  if (known) Settle(message.transfer_id);
}

void ReceiveTable::OnTick(absl::Time now) {
  std::vector<std::uint64_t> ids;
  for (auto& [id, entry] : sessions_) {
    entry.session.OnTick(now);
    ids.push_back(id);
  }
  for (const std::uint64_t id : ids) Settle(id);
}

absl::Status ReceiveTable::StartCopy(LinkId link, const DataHeader& header, int index,
                                     absl::Time now, std::vector<BlockCopy>* copies) {
  const auto it = header.incarnation == options_.incarnation ? sessions_.find(header.transfer_id)
                                                             : sessions_.end();
  if (it == sessions_.end() || it->second.released || !links_.contains(link)) {
    ++num_refused_blocks_;
    return absl::FailedPreconditionError("no such reservation");
  }
  const absl::Status status =
      it->second.session.StartCopy(link, BlockAt(header, index), now, copies);
  if (!status.ok()) ++num_refused_blocks_;
  return status;
}

void ReceiveTable::FinishCopy(const DataHeader& header, int index, const absl::Status& status) {
  // The entry exists: it is kept while a copy is under way.
  sessions_.at(header.transfer_id).session.FinishCopy(BlockAt(header, index), status);
  Settle(header.transfer_id);
}

void ReceiveTable::Settle(std::uint64_t transfer_id) {
  const auto it = sessions_.find(transfer_id);
  if (it == sessions_.end() || !it->second.session.over()) return;
  Entry& entry = it->second;
  const ReceiveSession& session = entry.session;
  const bool failed = session.state() == ReceiveSession::State::kFailed;
  if (failed && !entry.sender_told && session.link().has_value()) {
    entry.sender_told = true;
    ReplyTo(*session.link(), transfer_id, Refused{.why = session.failure()});
  }
  if (!session.settled()) return;
  if (!entry.released) {
    ReceiveDone done{
        .transfer_id = transfer_id,
        .status = Annotate(session.failure(), absl::StrCat("transfer t-", transfer_id)),
        .record = {},
        .report = {}};
    if (!failed) {
      done.record = session.record();
      done.report = session.report();
    }
    done_.push_back(std::move(done));
  }
  sessions_.erase(it);
}

void ReceiveTable::ReplyTo(LinkId link, std::uint64_t transfer_id, decltype(Message::body) body) {
  if (!links_.contains(link)) return;
  replies_.push_back({.link = link,
                      .message = {.transfer_id = transfer_id,
                                  .incarnation = options_.incarnation,
                                  .body = std::move(body)}});
}

absl::Time ReceiveTable::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, entry] : sessions_) {
    if (!entry.session.over()) next = std::min(next, entry.session.deadline());
  }
  return next;
}

}  // namespace baton::kvtransfer
