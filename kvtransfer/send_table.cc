#include "kvtransfer/send_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status.h"
#include "kvtransfer/fingerprint.h"

namespace baton::kvtransfer {
namespace {

std::string PeerName(const PeerAddress& peer) {
  return absl::StrCat("decode worker ", peer.worker_id, " at ", peer.address);
}

}  // namespace

SendTable::SendTable(Options options) : options_(std::move(options)) {
  limits_ = {.ack_timeout = options_.ack_timeout,
             .release_grace = options_.release_grace,
             .max_put_bytes = options_.max_frame_bytes};
}

absl::Status SendTable::CheckTicket(const TransferTicket& ticket,
                                    const std::vector<std::int32_t>& source_blocks) const {
  const std::string receiver = absl::StrCat("decode worker ", ticket.worker_id);
  BATON_RETURN_IF_ERROR(CheckSides({"the prefill worker", options_.fingerprint, options_.cut},
                                   {receiver, ticket.fingerprint, ticket.cut}));
  return SendSession::CheckTables(ticket, source_blocks, options_.cut, options_.num_blocks);
}

LinkId SendTable::FindOrOpenLink(const TransferTicket& ticket, absl::Time now) {
  const PeerAddress peer{
      .address = ticket.address, .worker_id = ticket.worker_id, .incarnation = ticket.incarnation};
  const auto [it, is_new] = links_by_peer_.try_emplace(peer, next_link_);
  if (is_new) {
    const LinkId id = next_link_++;
    links_[id] = {.peer = peer,
                  .transport = {},
                  .connect_deadline = now + options_.connect_timeout,
                  .turns = {},
                  .aborts = {}};
    actions_.push_back(OpenLink{.link = id, .peer = peer});
  }
  return it->second;
}

std::uint64_t SendTable::Begin(const TransferTicket& ticket,
                               std::vector<std::int32_t> source_blocks, absl::Time now) {
  const std::uint64_t key = next_key_++;
  if (absl::Status status = CheckTicket(ticket, source_blocks); !status.ok()) {
    done_.push_back({.key = key,
                     .status = Annotate(status, absl::StrCat("transfer t-", ticket.transfer_id)),
                     .report = {},
                     .worker_id = ticket.worker_id});
    return key;
  }
  const LinkId link_id = FindOrOpenLink(ticket, now);
  Link& link = links_.at(link_id);
  const auto it = transfers_.emplace_hint(
      transfers_.end(), key,
      Transfer{.session = SendSession(ticket, std::move(source_blocks),
                                      std::make_shared<const TransferPlan>(
                                          options_.fingerprint, options_.cut, ticket.cut),
                                      limits_),
               .link = link_id});
  link.turns.push_back(key);
  if (link.up) it->second.session.OnLinkUp(link.transport, now);
  return key;
}

void SendTable::Put(std::uint64_t key, int layer, int first_block, int last_block, absl::Time now) {
  const auto it = transfers_.find(key);
  if (it == transfers_.end()) return;
  it->second.session.Put(layer, first_block, last_block, now);
  Settle(key, now);
}

void SendTable::Complete(std::uint64_t key, HandoffRecord record, absl::Time now) {
  const auto it = transfers_.find(key);
  if (it == transfers_.end()) return;
  it->second.session.Complete(std::move(record), now);
  Settle(key, now);
}

void SendTable::Abort(std::uint64_t key, absl::Status why, absl::Time now) {
  const auto it = transfers_.find(key);
  if (it == transfers_.end()) return;
  it->second.session.Fail(std::move(why), now);
  Settle(key, now);
}

void SendTable::AbortAll(const absl::Status& why, absl::Time now) {
  std::vector<std::uint64_t> keys;
  for (const auto& [key, transfer] : transfers_) keys.push_back(key);
  for (const std::uint64_t key : keys) Abort(key, why, now);
}

void SendTable::OnLinkUp(LinkId link_id, std::string_view transport, absl::Time now) {
  const auto it = links_.find(link_id);
  if (it == links_.end()) return;
  it->second.up = true;
  for (const std::uint64_t key : it->second.turns) {
    transfers_.at(key).session.OnLinkUp(transport, now);
  }
  it->second.transport = std::string(transport);
}

void SendTable::OnLinkDown(LinkId link_id, const absl::Status& why, absl::Time now) {
  const auto it = links_.find(link_id);
  if (it == links_.end()) return;
  const Link link = std::move(it->second);
  links_by_peer_.erase(link.peer);
  links_.erase(it);
  const absl::Status annotated =
      Annotate(absl::Status(why.ok() ? absl::StatusCode::kUnavailable : why.code(), why.message()),
               absl::StrCat("link to ", PeerName(link.peer)));
  for (auto& [key, transfer] : transfers_) {
    if (transfer.link == link_id) transfer.session.Fail(annotated, now);
  }
  for (const std::uint64_t key : link.turns) Settle(key, now);
}

void SendTable::OnMessage(LinkId link_id, const Message& message, absl::Time now) {
  const auto link = links_.find(link_id);
  if (link == links_.end() || message.incarnation != link->second.peer.incarnation) return;
  for (auto& [key, transfer] : transfers_) {
    if (transfer.link != link_id || transfer.session.ticket().transfer_id != message.transfer_id ||
        !transfer.session.open()) {
      continue;
    }
    if (std::holds_alternative<Acknowledged>(message.body)) {
      transfer.session.OnAcknowledged(now);
    } else if (std::holds_alternative<LeaseRenewed>(message.body)) {
      transfer.session.OnRenewed(now);
    } else if (const auto* refused = std::get_if<Refused>(&message.body)) {
      transfer.tell_receiver = false;
      transfer.session.Fail(Annotate(refused->why, PeerName(link->second.peer)), now);
    }
    Settle(key, now);
    return;
  }
}

void SendTable::OnReleased(std::uint64_t put_id, absl::Time now) {
  const auto it = puts_.find(put_id);
  BATON_CHECK(it != puts_.end(), "a put was released twice or never made");
  const std::uint64_t key = it->second;
  puts_.erase(it);
  transfers_.at(key).session.OnReleased(now);
  Settle(key, now);
}

void SendTable::OnTick(absl::Time now) {
  std::vector<std::uint64_t> keys;
  for (auto& [key, transfer] : transfers_) {
    transfer.session.OnTick(now);
    keys.push_back(key);
  }
  for (const std::uint64_t key : keys) Settle(key, now);
  std::vector<LinkId> late;
  for (const auto& [id, link] : links_) {
    if (!link.up && now >= link.connect_deadline) late.push_back(id);
  }
  for (const LinkId id : late) {
    const absl::Status why = absl::UnavailableError(
        absl::StrFormat("no connection within %s", absl::FormatDuration(options_.connect_timeout)));
    actions_.push_back(BreakLink{.link = id, .why = why});
    OnLinkDown(id, why, now);
  }
}

void SendTable::Settle(std::uint64_t key, absl::Time now) {
  const auto it = transfers_.find(key);
  if (it == transfers_.end() || it->second.session.open()) return;
  Transfer& transfer = it->second;
  const SendSession& session = transfer.session;
  const auto link = links_.find(transfer.link);
  if (!transfer.closing_seen) {
    transfer.closing_seen = true;
    if (link != links_.end()) {
      std::erase(link->second.turns, key);
      if (!session.outcome().ok() && transfer.tell_receiver) {
        link->second.aborts.push_back({.transfer_id = session.ticket().transfer_id,
                                       .incarnation = session.ticket().incarnation,
                                       .body = AbortTransfer{.why = session.outcome()}});
      }
    }
  }
  if (session.state() == SendSession::State::kClosed) {
    done_.push_back({.key = key,
                     .status = Annotate(session.outcome(),
                                        absl::StrCat("transfer t-", session.ticket().transfer_id)),
                     .report = session.report(),
                     .worker_id = session.ticket().worker_id});
    transfers_.erase(it);
  } else if (session.must_break_link(now) && link != links_.end()) {
    const absl::Status why = absl::UnavailableError(
        "peer does not take bytes, and blocks of an ended transfer wait for it");
    const LinkId id = link->first;
    actions_.push_back(BreakLink{.link = id, .why = why});
    OnLinkDown(id, why, now);
  }
}

std::optional<Outgoing> SendTable::NextOf(std::uint64_t key, Transfer& transfer, absl::Time now) {
  std::optional<SendSession::Item> item = transfer.session.Next(now);
  if (!item.has_value()) return std::nullopt;
  const TransferTicket& ticket = transfer.session.ticket();
  Outgoing outgoing{.key = key, .item = *item, .frame = OutgoingMessage{}};
  if (const auto* range = std::get_if<PutRange>(&*item)) {
    OutgoingPut put{.put_id = next_put_++,
                    .header = {.transfer_id = ticket.transfer_id,
                               .incarnation = ticket.incarnation,
                               .rank = static_cast<std::uint16_t>(range->rank),
                               .layer = range->layer,
                               .first_block = range->first_block,
                               .num_blocks = range->last_block - range->first_block,
                               .checksummed = options_.checksum},
                    .blocks = transfer.session.BlocksOf(*range),
                    .plan = transfer.session.plan(),
                    .num_tokens = ticket.num_tokens};
    puts_.emplace(put.put_id, key);
    outgoing.frame = std::move(put);
    return outgoing;
  }
  Message message{.transfer_id = ticket.transfer_id, .incarnation = ticket.incarnation, .body = {}};
  if (const auto* begin = std::get_if<BeginTransfer>(&*item)) message.body = *begin;
  if (const auto* finish = std::get_if<FinishTransfer>(&*item)) message.body = *finish;
  if (std::holds_alternative<RenewLease>(*item)) message.body = RenewLease{};
  outgoing.frame = OutgoingMessage{.message = std::move(message)};
  return outgoing;
}

std::optional<Outgoing> SendTable::Next(LinkId link_id, absl::Time now) {
  const auto it = links_.find(link_id);
  if (it == links_.end() || !it->second.up) return std::nullopt;
  Link& link = it->second;
  if (!link.aborts.empty()) {
    Outgoing outgoing{.item = RenewLease{}, .frame = OutgoingMessage{link.aborts.front()}};
    link.aborts.pop_front();
    return outgoing;
  }
  for (std::size_t tried = 0; tried < link.turns.size(); ++tried) {
    const std::uint64_t key = link.turns.front();
    link.turns.pop_front();
    link.turns.push_back(key);
    if (auto outgoing = NextOf(key, transfers_.at(key), now)) return outgoing;
  }
  return std::nullopt;
}

void SendTable::Accepted(const Outgoing& outgoing, absl::Time offered) {
  const auto it = transfers_.find(outgoing.key);
  if (it == transfers_.end()) return;
  if (const auto* range = std::get_if<PutRange>(&outgoing.item)) {
    it->second.session.OnAccepted(*range, offered);
  }
}

void SendTable::TakeBack(LinkId link_id, const Outgoing& outgoing, absl::Time now) {
  if (outgoing.key == 0) {
    const auto link = links_.find(link_id);
    if (link == links_.end()) return;
    link->second.aborts.push_front(std::get<OutgoingMessage>(outgoing.frame).message);
    return;
  }
  const auto it = transfers_.find(outgoing.key);
  if (it == transfers_.end()) return;
  if (const auto* range = std::get_if<PutRange>(&outgoing.item)) {
    puts_.erase(std::get<OutgoingPut>(outgoing.frame).put_id);
    it->second.session.TakeBack(*range, now);
  } else {
    it->second.session.TakeBackControl(outgoing.item);
  }
  Settle(outgoing.key, now);
}

absl::Time SendTable::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [key, transfer] : transfers_) {
    next = std::min(next, transfer.session.NextDeadline());
  }
  for (const auto& [id, link] : links_) {
    if (!link.up) next = std::min(next, link.connect_deadline);
  }
  return next;
}

}  // namespace baton::kvtransfer
