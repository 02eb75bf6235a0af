#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtransfer/send_session.h"

namespace baton::kvtransfer {

using LinkId = std::uint64_t;

// Where a link leads. A restarted worker on the same address is another peer.
struct PeerAddress {
  std::string address;  // host:port
  std::string worker_id;
  std::uint64_t incarnation = 0;
  auto operator<=>(const PeerAddress&) const = default;
};

// A frame for the transport of a link. `put_id` names a put until it is released; 0 on messages.
struct OutgoingMessage {
  Message message;
};
struct OutgoingPut {
  std::uint64_t put_id = 0;
  DataHeader header;
  std::vector<std::int32_t> blocks;  // [num_blocks], in the pool of header.rank
  // What the receiver makes of them; for transports that take blocks apart before they leave.
  std::shared_ptr<const TransferPlan> plan;
  int num_tokens = 0;  // of the transfer
};
struct Outgoing {
  std::uint64_t key = 0;  // of the transfer; 0 for an abort whose transfer may be gone
  SendSession::Item item;
  std::variant<OutgoingMessage, OutgoingPut> frame;
};

// What the owner of the table has to do to links.
struct OpenLink {
  LinkId link = 0;
  PeerAddress peer;
};
struct BreakLink {
  LinkId link = 0;
  absl::Status why;
};
using LinkAction = std::variant<OpenLink, BreakLink>;

struct SendDone {
  std::uint64_t key = 0;
  absl::Status status;
  SendReport report;
  std::string worker_id;  // of the receiver
};

// All transfers of one sender and the links they use: who is next on each link, which deadlines
// run, what a lost link takes with it. Plain and driven by messages; the transport's side calls it
// under one lock. A link's transfers take turns frame by frame; aborts go first.
//
// A link is opened by the first Begin for its peer, stays up while idle, and is forgotten once
// broken: the next Begin opens another. Not thread-safe.
class SendTable {
 public:
  struct Options {
    ModelFingerprint fingerprint;
    KvCut cut;           // of the source pool
    int num_blocks = 0;  // of each of its ranks
    absl::Duration connect_timeout = absl::Seconds(5);
    absl::Duration ack_timeout = absl::Seconds(10);
    absl::Duration release_grace = absl::Milliseconds(500);
    std::size_t max_frame_bytes = 1 << 20;
    bool checksum = false;
  };
  explicit SendTable(Options options);

  // The owner's calls; a key that is unknown or done is ignored.
  std::uint64_t Begin(const TransferTicket& ticket, std::vector<std::int32_t> source_blocks,
                      absl::Time now);
  void Put(std::uint64_t key, int layer, int first_block, int last_block, absl::Time now);
  void Complete(std::uint64_t key, HandoffRecord record, absl::Time now);
  void Abort(std::uint64_t key, absl::Status why, absl::Time now);
  void AbortAll(const absl::Status& why, absl::Time now);

  // From the links.
  void OnLinkUp(LinkId link, std::string_view transport, absl::Time now);
  // The link is gone for good: its transfers fail now, and it will not be used again.
  void OnLinkDown(LinkId link, const absl::Status& why, absl::Time now);
  void OnMessage(LinkId link, const Message& message, absl::Time now);
  void OnReleased(std::uint64_t put_id, absl::Time now);
  void OnTick(absl::Time now);

  // The next frame for a link that is up. To be answered by Accepted or TakeBack before the next.
  std::optional<Outgoing> Next(LinkId link, absl::Time now);
  void Accepted(const Outgoing& outgoing, absl::Time offered);
  void TakeBack(LinkId link, const Outgoing& outgoing, absl::Time now);

  std::vector<LinkAction> TakeLinkActions() { return std::exchange(actions_, {}); }
  std::vector<SendDone> TakeDone() { return std::exchange(done_, {}); }

  absl::Time NextDeadline() const;
  std::size_t num_transfers() const { return transfers_.size(); }
  std::size_t num_links() const { return links_.size(); }
  std::size_t num_puts() const { return puts_.size(); }

 private:
  struct Transfer {
    SendSession session;
    LinkId link = 0;
    bool tell_receiver = true;  // of a failure; false once the receiver told us
    bool closing_seen = false;
  };
  struct Link {
    PeerAddress peer;
    bool up = false;
    std::string transport;  // once up
    absl::Time connect_deadline;
    std::deque<std::uint64_t> turns;  // keys; the front is next
    std::deque<Message> aborts;       // bounded by the transfers that were begun on this link
  };

  LinkId FindOrOpenLink(const TransferTicket& ticket, absl::Time now);
  // Follows up a change of `transfer`: queues the abort, breaks the link, reports what is done.
  void Settle(std::uint64_t key, absl::Time now);
  void SettleLink(LinkId link, absl::Time now);
  std::optional<Outgoing> NextOf(std::uint64_t key, Transfer& transfer, absl::Time now);
  absl::Status CheckTicket(const TransferTicket& ticket,
                           const std::vector<std::int32_t>& source_blocks) const;

  const Options options_;
  SendSession::Limits limits_;
  std::uint64_t next_key_ = 1;
  LinkId next_link_ = 1;
  std::uint64_t next_put_ = 1;
  std::map<std::uint64_t, Transfer> transfers_;
  std::map<LinkId, Link> links_;
  std::map<PeerAddress, LinkId> links_by_peer_;
  std::map<std::uint64_t, std::uint64_t> puts_;  // put id -> key
  std::vector<LinkAction> actions_;
  std::vector<SendDone> done_;
};

}  // namespace baton::kvtransfer
