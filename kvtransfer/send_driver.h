#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "kvtransfer/send_table.h"
#include "kvtransfer/transfer.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

struct TransferMetrics;

// The send table made thread-safe and put to work: one thread of its own gives frames to the links,
// keeps the deadlines and calls the owners back. The owner's calls only change the table under the
// lock and wake that thread, so that the wire works while the engine computes on.
class SendDriver final : public TransferSender {
 public:
  struct Options {
    SendTable::Options table;
    TransferMetrics* metrics = nullptr;
  };
  // The connector's memory is registered.
  SendDriver(Options options, std::unique_ptr<Connector> connector, const Clock& clock);
  ~SendDriver() override;

  std::uint64_t Begin(const TransferTicket& ticket, std::vector<std::int32_t> source_blocks,
                      DoneCallback done) override;
  void PutLayer(std::uint64_t key, int layer, int first_block, int last_block) override;
  void Complete(std::uint64_t key, HandoffRecord record) override;
  void Abort(std::uint64_t key, absl::Status why) override;

 private:
  struct Link {
    std::shared_ptr<Transport> transport;  // null until Connect returned
    PeerAddress peer;
    bool up = false;
    bool blocked = false;            // waits for on_writable
    std::uint64_t num_writable = 0;  // on_writable calls so far
  };

  void Run();
  bool Turn();  // one round of work; false when there was none
  void DoLinkActions(std::vector<LinkAction> actions);
  void OpenOne(const OpenLink& open);
  bool PumpLink(LinkId id);
  bool Offer(Transport& transport, const Outgoing& outgoing) const;
  void Tell(std::vector<SendDone> done);
  TransportEvents EventsOf(LinkId id);
  void OnUp(LinkId id, std::string_view transport);
  void OnDown(LinkId id, const absl::Status& why);
  void CloseAll();
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::unique_ptr<Connector> connector_;
  const Clock& clock_;

  absl::Mutex mutex_;
  SendTable table_ ABSL_GUARDED_BY(mutex_);
  std::map<LinkId, Link> links_ ABSL_GUARDED_BY(mutex_);  // until on_down
  std::map<std::uint64_t, DoneCallback> callbacks_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::kvtransfer
