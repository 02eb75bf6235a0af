#pragma once
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/bounded_queue.h"
#include "kvtransfer/frame_stream.h"
#include "kvtransfer/grpc_stream.h"

namespace baton::kvtransfer {

// A frame stream within one process, with a thread each way, that can be cut at any moment: stands
// for gRPC's where that cannot go (TSan). Frames are read from where they lie, as gRPC does.
// Whoever made it joins it before letting go: the last reference must not be dropped on its own
// thread.
class LoopbackStream final : public FrameStream,
                             public std::enable_shared_from_this<LoopbackStream> {
 public:
  explicit LoopbackStream(Events events) : events_(std::move(events)) {}
  // Waits until the stream, which must be closed, has called its last event.
  void Join() { forward_thread_.join(); }

  void Start(const GrpcStreamServer::Accept& accept) {
    handler_ = accept(std::make_shared<Replies>(backward_));
    backward_thread_ = std::thread([this] { RunBackward(); });
    forward_thread_ = std::thread([this] { RunForward(); });  // joins the other: comes second
  }
  bool TryWrite(FrameParts&& parts) override { return forward_->TryPush(std::move(parts)); }
  void Close(const absl::Status& why) override {
    {
      absl::MutexLock lock(&mutex_);
      if (why_.ok()) why_ = why;
    }
    forward_->Close();
    backward_->Close();
  }

 private:
  // The receiver's grip; outlives the stream.
  class Replies final : public ReplyStream {
   public:
    explicit Replies(std::shared_ptr<BoundedQueue<std::string>> queue) : queue_(std::move(queue)) {}
    void Write(std::string frame) override { queue_->TryPush(std::move(frame)); }
    void Close(const absl::Status&) override { queue_->Close(); }
    std::string peer() const override { return "loopback"; }

   private:
    const std::shared_ptr<BoundedQueue<std::string>> queue_;
  };

  void RunForward() {
    absl::Status why;
    while (auto parts = forward_->Pop(absl::InfiniteFuture())) {
      std::vector<std::span<const std::byte>> pieces = {
          {reinterpret_cast<const std::byte*>(parts->head.data()), parts->head.size()}};
      pieces.insert(pieces.end(), parts->pieces.begin(), parts->pieces.end());
      if (why.ok()) why = handler_->OnFrame(ByteCursor(std::move(pieces)));
      if (parts->on_released) parts->on_released();
      if (!why.ok()) Close(why);
      events_.on_writable();
    }
    backward_->Close();
    backward_thread_.join();
    {
      absl::MutexLock lock(&mutex_);
      why = why_.ok() ? absl::UnavailableError("closed by the peer") : why_;
    }
    handler_->OnLost(why);
    handler_->OnClosed(why);
    handler_.reset();
    events_.on_closed(why);
  }
  void RunBackward() {
    while (auto frame = backward_->Pop(absl::InfiniteFuture())) {
      events_.on_frame({reinterpret_cast<const std::byte*>(frame->data()), frame->size()});
    }
    forward_->Close();
  }

  const Events events_;
  const std::shared_ptr<BoundedQueue<FrameParts>> forward_ =
      std::make_shared<BoundedQueue<FrameParts>>(2);
  const std::shared_ptr<BoundedQueue<std::string>> backward_ =
      std::make_shared<BoundedQueue<std::string>>(4096);
  std::unique_ptr<StreamHandler> handler_;
  absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  std::thread forward_thread_;
  std::thread backward_thread_;
};

}  // namespace baton::kvtransfer
