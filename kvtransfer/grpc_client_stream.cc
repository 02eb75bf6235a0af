#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>

#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_threads.h"
#include "kvtransfer/grpc_method.h"
#include "kvtransfer/grpc_stream.h"

namespace baton::kvtransfer {
namespace {

// One frame being written and one behind it keep the wire busy; more would only delay aborts.
constexpr std::size_t kMaxFramesTaken = 2;

// Shared by the slices of one frame; the last one to go tells the owner.
struct SliceGuard {
  explicit SliceGuard(std::function<void()> released) : on_released(std::move(released)) {}
  static void Unref(void* guard) {
    auto* self = static_cast<SliceGuard*>(guard);
    if (self->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    self->on_released();
    delete self;
  }
  std::function<void()> on_released;
  std::atomic<int> refs{0};
};

grpc::ByteBuffer ToByteBuffer(FrameParts&& parts) {
  std::vector<grpc::Slice> slices;
  slices.reserve(1 + parts.pieces.size());
  slices.emplace_back(parts.head.data(), parts.head.size());
  if (!parts.pieces.empty()) {
    auto* guard = new SliceGuard(std::move(parts.on_released));
    guard->refs = static_cast<int>(parts.pieces.size());
    for (const auto& piece : parts.pieces) {
      slices.emplace_back(const_cast<std::byte*>(piece.data()), piece.size(), &SliceGuard::Unref,
                          guard);
    }
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

grpc::ChannelArguments ChannelArgs(std::size_t max_frame_bytes) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(static_cast<int>(max_frame_bytes));
  args.SetMaxSendMessageSize(static_cast<int>(max_frame_bytes));
  // A connection per link: its loss is the link's loss, and the next link dials afresh.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Retries keep references to what was sent, and so to KV blocks.
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  return args;
}

// What belongs to one call and must not be destroyed on a thread of gRPC's.
struct CallState {
  explicit CallState(std::shared_ptr<grpc::Channel> channel) : stub(std::move(channel)) {}
  grpc::GenericStub stub;
  grpc::ClientContext context;
};

// Destroys ended calls on a thread of its own: a channel that goes on one of gRPC's threads may
// take the queue away from under that thread (github.com/grpc/grpc issues 37198 and 37858).
// Thread-safe.
class CallReaper {
 public:
  CallReaper() : thread_([this] { Run(); }) {}
  ~CallReaper() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }
  void Take(std::unique_ptr<CallState> ended) {
    absl::MutexLock lock(&mutex_);
    ended_.push_back(std::move(ended));
  }

 private:
  void Run() {
    const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !ended_.empty();
    };
    while (true) {
      std::vector<std::unique_ptr<CallState>> ended;  // destroyed after the lock
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&due));
      if (ended_.empty()) return;
      ended.swap(ended_);
    }
  }

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<CallState>> ended_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// The call's reactor. Lives until gRPC's OnDone, however early its owner lets go.
class GrpcClientStream final : public FrameStream,
                               public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  GrpcClientStream(const std::string& address, std::size_t max_frame_bytes, Events events,
                   CallReaper& reaper)
      : events_(std::move(events)),
        reaper_(reaper),
        call_(std::make_unique<CallState>(grpc::CreateCustomChannel(
            address, grpc::InsecureChannelCredentials(), ChannelArgs(max_frame_bytes)))) {}

  void Start(std::shared_ptr<GrpcClientStream> self) {
    self_ = std::move(self);
    call_->stub.PrepareBidiStreamingCall(&call_->context, kLinkMethod, grpc::StubOptions(), this);
    AddHold();  // writes start outside the reactions
    StartRead(&read_buffer_);
    StartCall();
  }

  bool TryWrite(FrameParts&& parts) override {
    absl::MutexLock lock(&mutex_);
    if (closed_ || frames_taken_ >= kMaxFramesTaken) return false;
    ++frames_taken_;
    if (writing_) {
      waiting_.push_back(ToByteBuffer(std::move(parts)));
    } else {
      writing_ = true;
      write_buffer_ = ToByteBuffer(std::move(parts));
      StartWrite(&write_buffer_);
    }
    return true;
  }

  void Close(const absl::Status& why) override {
    if (Stop(why)) {
      absl::MutexLock lock(&mutex_);
      // While the hold is on, OnDone cannot take the call away.
      if (holding_) call_->context.TryCancel();
    }
    DropHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Stop(absl::OkStatus());  // the call has ended; its own status says why
      DropHold();
      return;
    }
    const std::string frame = Flatten(read_buffer_);
    read_buffer_.Clear();
    events_.on_frame({reinterpret_cast<const std::byte*>(frame.data()), frame.size()});
    StartRead(&read_buffer_);
  }

  void OnWriteDone(bool ok) override {
    grpc::ByteBuffer written;  // drops our references after the lock
    {
      absl::MutexLock lock(&mutex_);
      written.Swap(&write_buffer_);
      writing_ = false;
      --frames_taken_;
      if (ok && !closed_ && !waiting_.empty()) {
        writing_ = true;
        write_buffer_.Swap(&waiting_.front());
        waiting_.pop_front();
        StartWrite(&write_buffer_);
      }
    }
    written.Clear();
    if (ok) {
      events_.on_writable();
    } else {
      Stop(absl::OkStatus());
      DropHold();
    }
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status why;
    {
      absl::MutexLock lock(&mutex_);
      why = why_;
    }
    if (why.ok()) {
      why = status.ok() ? absl::UnavailableError("closed by the peer")
                        : absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                       status.error_message());
    }
    reaper_.Take(std::move(call_));
    events_.on_closed(why);
    self_.reset();  // may destroy this
  }

 private:
  // Takes no more frames and lets go of those that wait. False if that was so before.
  bool Stop(const absl::Status& why) {
    std::deque<grpc::ByteBuffer> dropped;  // released after the lock
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    closed_ = true;
    why_ = why;
    dropped.swap(waiting_);
    return true;
  }
  void DropHold() {
    {
      absl::MutexLock lock(&mutex_);
      if (!holding_) return;
      holding_ = false;
    }
    RemoveHold();
  }

  const Events events_;
  CallReaper& reaper_;
  std::unique_ptr<CallState> call_;  // until OnDone
  grpc::ByteBuffer read_buffer_;
  std::shared_ptr<GrpcClientStream> self_;

  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool holding_ ABSL_GUARDED_BY(mutex_) = true;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t frames_taken_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ByteBuffer write_buffer_ ABSL_GUARDED_BY(mutex_);
  std::deque<grpc::ByteBuffer> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

class Dialer final : public GrpcDialer {
 public:
  Dialer() { KeepGrpcThreads(); }
  std::shared_ptr<FrameStream> Dial(const std::string& address, std::size_t max_frame_bytes,
                                    FrameStream::Events events) override {
    auto stream =
        std::make_shared<GrpcClientStream>(address, max_frame_bytes, std::move(events), reaper_);
    stream->Start(stream);
    return stream;
  }

 private:
  CallReaper reaper_;
};

}  // namespace

std::unique_ptr<GrpcDialer> MakeGrpcDialer() { return std::make_unique<Dialer>(); }

}  // namespace baton::kvtransfer
