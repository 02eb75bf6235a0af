#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "kvtransfer/messages.h"
#include "kvtransfer/send_table.h"
#include "kvtransfer/transfer.h"

// The seam between transfers and what moves their bytes. It has the one-sided shape that RDMA and
// NCCL share: memory is registered once, puts name source and destination blocks, a notification
// arrives after the puts before it, and a link is aborted alone.
namespace baton::kvtransfer {

// What a link reports. Called on the link's threads or from within the link's own calls, never with
// a lock of the link held. Set once, before the link is opened.
struct TransportEvents {
  std::function<void(std::string_view transport)> on_up;  // the handshake is done
  std::function<void(const Message& message)> on_message;
  std::function<void()> on_writable;  // after a Try call returned false: try again
  // The source bytes of this put are no longer read. Once per put that was taken, in any case,
  // possibly after on_down.
  std::function<void(std::uint64_t put_id)> on_released;
  // The link is gone, for this reason. Once, and nothing but on_released follows.
  std::function<void(const absl::Status& why)> on_down;
};

// One link to one receiver. Thread-safe; no call blocks on the peer.
class Transport {
 public:
  virtual ~Transport() = default;
  // Moves the blocks. False: no room now, or down.
  virtual bool TryPut(const OutgoingPut& put) = 0;
  // Delivers `message` after every put taken before it. False: no room now, or down.
  virtual bool TryNotify(const Message& message) = 0;
  // Breaks the link; on_down follows. Puts under way are given up and released.
  virtual void Abort(const absl::Status& why) = 0;
};

// Opens links of one kind of transport.
class Connector {
 public:
  virtual ~Connector() = default;
  // Makes the source pools known, before the first Connect. The memory must outlive the links.
  virtual absl::Status RegisterMemory(const KvMemory& memory) = 0;
  // Starts to open a link: on_up or on_down follows. Does not wait.
  virtual std::shared_ptr<Transport> Connect(const PeerAddress& peer, TransportEvents events) = 0;
};

}  // namespace baton::kvtransfer
