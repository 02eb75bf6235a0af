#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "kvtransfer/frame_stream.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/transfer.h"

namespace baton::kvtransfer {

struct TransferMetrics;

// The receive table made thread-safe and put to work: links hand it their frames, it copies the
// bytes into the pool, sends the answers, keeps the deadlines and calls the owner. One thread of
// its own, for deadlines and callbacks; copies run on the links' threads.
class ReceiveHub {
 public:
  struct Options {
    ReceiveTable::Options table;
    KvMemory memory;
    TransferMetrics* metrics = nullptr;
  };
  // Sends an answer on a link; must not block. Called with no lock of the hub held.
  using Reply = std::function<void(const Message& message)>;

  ReceiveHub(Options options, TransferReceiver::Callbacks callbacks, const Clock& clock);
  // Requires that no link calls any more. Open reservations end without a callback.
  ~ReceiveHub();

  TransferTicket Reserve(std::vector<std::int32_t> blocks, int num_tokens);
  void Release(std::uint64_t transfer_id);

  LinkId NewLinkId();
  absl::Status CheckHello(const Hello& hello) const;
  void OnLinkUp(LinkId link, std::string_view peer_name, std::string_view transport, Reply reply);
  void OnLinkDown(LinkId link, const absl::Status& why);
  // Takes one frame of a link that is up. Not OK: the link cannot be trusted any more; close it.
  // A frame that is merely late or stray is skipped and OK.
  absl::Status OnFrame(LinkId link, ByteCursor& frame);

 private:
  absl::Status OnData(LinkId link, const DataHeader& header, ByteCursor& frame);
  void CopyBlock(LinkId link, const DataHeader& header, int index, std::uint32_t checksum,
                 ByteCursor& frame);
  void Flush();  // sends the table's answers; no lock held
  void Run();
  void Tell(const ReceiveDone& done);

  const Options options_;
  const TransferReceiver::Callbacks callbacks_;
  const Clock& clock_;

  mutable absl::Mutex mutex_;
  ReceiveTable table_ ABSL_GUARDED_BY(mutex_);
  std::map<LinkId, std::shared_ptr<const Reply>> replies_ ABSL_GUARDED_BY(mutex_);
  LinkId next_link_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<ReceiveDone> done_ ABSL_GUARDED_BY(mutex_);  // not yet told
  std::uint64_t telling_ ABSL_GUARDED_BY(mutex_) = 0;      // transfer id, 0 = none
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::kvtransfer
