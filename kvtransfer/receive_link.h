#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "kvtransfer/grpc_stream.h"
#include "kvtransfer/receive_hub.h"
#include "kvtransfer/receive_side.h"
#include "kvtransfer/shm_ring.h"

namespace baton::kvtransfer {

// The receiver's end of one link: checks the Hello, then feeds the hub from the stream or, when a
// ring was agreed on, from the ring with a thread of its own. Calls come from the stream's threads,
// one at a time, except OnLost.
class ReceiveLink final : public StreamHandler {
 public:
  struct Options {
    std::string worker_id;
    std::uint64_t incarnation = 0;
    KvCut cut;  // of the hub's pool
    bool allow_shared_memory = true;
    KvMemory memory;                              // of the hub; needed with side_channels
    std::shared_ptr<SideChannels> side_channels;  // null: none
  };
  // `options` must outlive the link.
  ReceiveLink(const Options& options, std::shared_ptr<ReceiveHub> hub,
              std::shared_ptr<ReplyStream> stream);
  ~ReceiveLink() override;

  absl::Status OnFrame(ByteCursor frame) override;
  void OnLost(const absl::Status& why) override;
  void OnClosed(const absl::Status& why) override;

 private:
  absl::Status OnHello(ByteCursor& frame);
  // Why the offered ring is not used; empty when it is.
  std::string TakeRing(const Hello& hello);
  // Chooses how the sender's blocks come, and sets what reads them: the reason for Welcome.
  std::string ChooseTransport(const Hello& hello, std::string* transport);
  void OnLinkFailed(const absl::Status& why);
  void ReadRing();
  void StopRing();

  const Options& options_;
  const std::shared_ptr<ReceiveHub> hub_;
  const std::shared_ptr<ReplyStream> stream_;
  const LinkId id_;
  std::atomic<bool> greeted_{false};
  std::string peer_name_;
  std::unique_ptr<ReceiveSide> side_;
  std::unique_ptr<RingReader> ring_;
  std::thread ring_thread_;
};

}  // namespace baton::kvtransfer
