#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/receive_hub.h"
#include "kvtransfer/side_channel.h"

namespace baton::kvtransfer {

// What a link of the receiver does when its blocks come over a side channel: control frames go to
// the hub as ever, but Finish only once everything announced before it has landed.
class ReceiveSide {
 public:
  // `memory` must outlive it. `on_failed` closes the link.
  ReceiveSide(SideChannels& channels, const KvMemory& memory, const Hello& hello,
              std::shared_ptr<ReceiveHub> hub, LinkId link,
              std::function<void(const absl::Status&)> on_failed);

  // As StreamHandler::OnFrame.
  absl::Status OnFrame(ByteCursor& frame);
  void Lose() { channel_->Lose(); }
  void Stop() { channel_->Stop(); }

 private:
  // Blocks that the channel writes. It tells of them in the order they were claimed.
  struct Claim {
    DataHeader header;
    IncomingPut put;
    int num_open = 0;
  };
  std::vector<ClaimedBlock> OnAnnounced(const SideMessage& message);
  void OnLanded(int index, const absl::Status& status);

  const KvMemory& memory_;
  const std::shared_ptr<ReceiveHub> hub_;
  const LinkId link_;
  std::deque<Claim> claims_;  // touched by the channel's thread alone
  std::unique_ptr<ReceiveSideChannel> channel_;
};

}  // namespace baton::kvtransfer
