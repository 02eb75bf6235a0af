#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/receive_session.h"

namespace baton::kvtransfer {

struct ReceiveDone {
  std::uint64_t transfer_id = 0;
  absl::Status status;  // OK: complete, with record and report
  HandoffRecord record;
  ReceiveReport report;
};

// All reservations of one receiver: finds the session a frame belongs to, refuses what belongs to
// none, and gathers the answers. Plain and driven by messages; the receiver calls it under one
// lock. Not thread-safe.
class ReceiveTable {
 public:
  struct Options {
    std::string worker_id;
    std::uint64_t incarnation = 0;
    ModelFingerprint fingerprint;
    KvCut cut;  // of our pool
    ReceiveSession::Limits limits;
  };
  struct Reply {
    LinkId link = 0;
    Message message;
  };
  explicit ReceiveTable(Options options);

  // Opens a reservation. The ticket's address is left for the caller to fill in.
  TransferTicket Reserve(std::vector<std::int32_t> blocks, int num_tokens, absl::Time now);
  // Ends a reservation without an outcome; its sender is told. While num_copying() of it is not 0,
  // a copy that was granted before is still being made.
  void Release(std::uint64_t transfer_id);
  int num_copying(std::uint64_t transfer_id) const;

  // Decides on a new link: the answer to Hello, which the link must be closed after if it refuses.
  //   kFailedPrecondition  versions, incarnations or fingerprints do not fit; names both sides
  absl::Status CheckHello(const Hello& hello) const;
  // `hello` is what CheckHello found OK.
  void OnLinkUp(LinkId link, const Hello& hello, std::string_view transport);
  void OnLinkDown(LinkId link, const absl::Status& why);
  void OnMessage(LinkId link, const Message& message, absl::Time now);
  void OnTick(absl::Time now);

  // How blocks are re-sliced that come over a link; null when it is not up.
  std::shared_ptr<const TransferPlan> PlanOf(LinkId link) const;
  // Grants the writing of source block `header.first_block + index` and appends where its bytes go
  // in our pool. A refused block must be skipped. Every grant is answered by FinishCopy.
  absl::Status StartCopy(LinkId link, const DataHeader& header, int index, absl::Time now,
                         std::vector<BlockCopy>* copies);
  void FinishCopy(const DataHeader& header, int index, const absl::Status& status);

  std::vector<Reply> TakeReplies() { return std::exchange(replies_, {}); }
  // Outcomes of reservations that nobody writes to any more; each is given once and forgotten.
  std::vector<ReceiveDone> TakeDone() { return std::exchange(done_, {}); }

  absl::Time NextDeadline() const;
  std::size_t num_reservations() const { return sessions_.size(); }
  std::int64_t num_refused_blocks() const { return num_refused_blocks_; }

 private:
  struct Link {
    std::string peer_name;
    std::string transport;
    std::shared_ptr<const TransferPlan> plan;
  };
  struct Entry {
    ReceiveSession session;
    bool released = false;  // only waits for the last copy to end
    bool sender_told = false;
  };
  void Settle(std::uint64_t transfer_id);
  void ReplyTo(LinkId link, std::uint64_t transfer_id, decltype(Message::body) body);
  absl::Status Apply(LinkId link, const Link& from, Entry& entry, const Message& message,
                     absl::Time now);

  const Options options_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Entry> sessions_;
  std::map<LinkId, Link> links_;
  std::vector<Reply> replies_;
  std::vector<ReceiveDone> done_;
  std::int64_t num_refused_blocks_ = 0;
};

}  // namespace baton::kvtransfer
