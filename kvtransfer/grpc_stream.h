#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kvtransfer/frame_stream.h"

// Frame streams over gRPC: one raw-bytes bidirectional call per link, a frame a message. The bytes
// of a put go out from where they lie; the receiver gets the slices as they came from the socket.
namespace baton::kvtransfer {

// Opens streams. Must outlive them: destroy it after their on_closed.
class GrpcDialer {
 public:
  virtual ~GrpcDialer() = default;
  // Calls the server at `address` (host:port) on a connection of its own. Does not wait; a server
  // that cannot be reached closes the stream with kUnavailable.
  virtual std::shared_ptr<FrameStream> Dial(const std::string& address, std::size_t max_frame_bytes,
                                            FrameStream::Events events) = 0;
};
std::unique_ptr<GrpcDialer> MakeGrpcDialer();

// The receiving end of one stream. Its calls come from gRPC's threads, one at a time.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // Not OK: the stream is closed with this status.
  virtual absl::Status OnFrame(ByteCursor frame) = 0;
  // The peer is gone or the stream is being closed; a frame may still be under way in OnFrame. Any
  // thread, any number of times.
  virtual void OnLost(const absl::Status& why) = 0;
  // Once, last; no frame is being handled.
  virtual void OnClosed(const absl::Status& why) = 0;
};

// What a handler may do to its stream, from any thread, as long as it lives.
class ReplyStream {
 public:
  virtual ~ReplyStream() = default;
  // Queues a frame. A peer that lets too many pile up is cut off.
  virtual void Write(std::string frame) = 0;
  virtual void Close(const absl::Status& why) = 0;
  virtual std::string peer() const = 0;
};

// Accepts streams. Destroying it closes them all and waits for their handlers' OnClosed.
class GrpcStreamServer {
 public:
  using Accept = std::function<std::unique_ptr<StreamHandler>(std::shared_ptr<ReplyStream> stream)>;
  //   kUnavailable  the address cannot be bound; names it
  static absl::StatusOr<std::unique_ptr<GrpcStreamServer>> Start(const std::string& address,
                                                                 std::size_t max_frame_bytes,
                                                                 Accept accept);
  virtual ~GrpcStreamServer() = default;
  virtual int port() const = 0;
};

}  // namespace baton::kvtransfer
