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
#include "kvtransfer/pool_access.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/transfer.h"

namespace baton::kvtransfer {

struct TransferMetrics;

// The blocks of a data frame and where they go. Move-only: the blocks look into `copies`.
struct IncomingPut {
  IncomingPut() = default;
  IncomingPut(IncomingPut&&) = default;
  IncomingPut& operator=(IncomingPut&&) = default;
  std::size_t block_bytes = 0;
  std::vector<BlockCopy> copies;
  std::vector<IncomingBlock> blocks;  // [num_blocks] of the frame
};

// The receive table made thread-safe and put to work: links hand it their frames, it copies the
// bytes into the pool, sends the answers, keeps the deadlines and calls the owner. One thread of
// its own, for deadlines and callbacks; copies run on the links' threads.
class ReceiveHub {
 public:
  struct Options {
    ReceiveTable::Options table;
    std::unique_ptr<PoolWriter> writer;
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
  void OnLinkUp(LinkId link, const Hello& hello, std::string_view transport, Reply reply);
  void OnLinkDown(LinkId link, const absl::Status& why);
  // Takes one frame of a link that is up. Not OK: the link cannot be trusted any more; close it.
  // A frame that is merely late or stray is skipped and OK.
  absl::Status OnFrame(LinkId link, ByteCursor& frame);

  // Takes a message that was decoded before.
  void OnMessage(LinkId link, const Message& message);

  // What OnFrame does with a data frame, in steps, for links whose bytes come another way: claims
  // the blocks that are still wanted and says where they go; then FinishPut tells of each granted
  // one, by its status, whether it is there. In between, Release of the transfer waits.
  //   kDataLoss     not a frame that the link's sender can mean; close the link
  //   kUnavailable  the link is down already
  absl::StatusOr<IncomingPut> StartPut(LinkId link, const DataHeader& header);
  void FinishPut(const DataHeader& header, const IncomingPut& put);

 private:
  absl::Status OnData(LinkId link, const DataHeader& header, ByteCursor& frame);
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
