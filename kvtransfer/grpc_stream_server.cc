#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/grpc_method.h"
#include "kvtransfer/grpc_stream.h"

namespace baton::kvtransfer {
namespace {

// Answers are few and short; a peer that does not read this many is not alive.
constexpr std::size_t kMaxWaitingReplies = 4096;

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

class ServerStream;

// The handler's grip on a stream that may be gone.
class StreamGrip final : public ReplyStream {
 public:
  StreamGrip(ServerStream* stream, std::string peer) : stream_(stream), peer_(std::move(peer)) {}
  void Write(std::string frame) override;
  void Close(const absl::Status& why) override;
  std::string peer() const override { return peer_; }
  void Detach() {
    absl::MutexLock lock(&mutex_);
    stream_ = nullptr;
  }

 private:
  absl::Mutex mutex_;
  ServerStream* stream_ ABSL_GUARDED_BY(mutex_);
  const std::string peer_;
};

class ServerStream final : public grpc::ServerGenericBidiReactor {
 public:
  ServerStream(grpc::GenericCallbackServerContext* context, const GrpcStreamServer::Accept& accept)
      : context_(context),
        grip_(std::make_shared<StreamGrip>(this, context->peer())),
        handler_(accept(grip_)) {
    StartRead(&read_buffer_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Lose(absl::OkStatus());
      return;
    }
    std::vector<grpc::Slice> slices;
    absl::Status status = absl::DataLossError("unreadable message");
    if (read_buffer_.Dump(&slices).ok()) {
      std::vector<std::span<const std::byte>> pieces;
      pieces.reserve(slices.size());
      for (const grpc::Slice& slice : slices) {
        pieces.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
      }
      status = handler_->OnFrame(ByteCursor(std::move(pieces)));
    }
    read_buffer_.Clear();
    slices.clear();
    if (!status.ok()) {
      Lose(status);
      return;
    }
    StartRead(&read_buffer_);
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) EndLocked(absl::UnavailableError("connection lost"));
      if (ended_) {
        FinishNow();
      } else {
        StartNextWrite();
      }
    }
    if (!ok) handler_->OnLost(absl::UnavailableError("connection lost"));
  }

  void OnCancel() override { Lose(absl::UnavailableError("connection lost")); }

  void OnDone() override {
    grip_->Detach();
    absl::Status why;
    {
      absl::MutexLock lock(&mutex_);
      why = why_;
    }
    handler_->OnClosed(why);
    delete this;
  }

  void Write(std::string frame) {
    bool overflow = false;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return;
      overflow = waiting_.size() >= kMaxWaitingReplies;
      if (!overflow) {
        waiting_.push_back(std::move(frame));
        if (!writing_) StartNextWrite();
      }
    }
    if (overflow) End(absl::ResourceExhaustedError("peer does not read its answers"));
  }

  void End(const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    EndLocked(why);
  }

 private:
  // From gRPC's reactions only: OnLost may write to other streams, so no grip may be held.
  void Lose(const absl::Status& why) {
    End(why);
    handler_->OnLost(why.ok() ? absl::UnavailableError("closed by the peer") : why);
  }
  void EndLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ended_) return;
    ended_ = true;
    why_ = why;
    if (writing_) {
      context_->TryCancel();  // the peer may not be reading; OnWriteDone finishes
    } else {
      FinishNow();
    }
  }
  void StartNextWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (waiting_.empty()) return;
    const grpc::Slice slice(waiting_.front().data(), waiting_.front().size());
    waiting_.pop_front();
    write_buffer_ = grpc::ByteBuffer(&slice, 1);
    writing_ = true;
    StartWrite(&write_buffer_);
  }
  void FinishNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    Finish(ToGrpc(why_));
  }

  grpc::GenericCallbackServerContext* const context_;  // gRPC's; lives until OnDone
  const std::shared_ptr<StreamGrip> grip_;
  const std::unique_ptr<StreamHandler> handler_;
  grpc::ByteBuffer read_buffer_;
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer write_buffer_ ABSL_GUARDED_BY(mutex_);
};

void StreamGrip::Write(std::string frame) {
  absl::MutexLock lock(&mutex_);
  if (stream_ != nullptr) stream_->Write(std::move(frame));
}
void StreamGrip::Close(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (stream_ != nullptr) stream_->End(why);
}

// Refuses any other method.
class RefusingStream final : public grpc::ServerGenericBidiReactor {
 public:
  RefusingStream() { Finish({grpc::StatusCode::UNIMPLEMENTED, "no such method"}); }
  void OnDone() override { delete this; }
};

class LinkService final : public grpc::CallbackGenericService {
 public:
  explicit LinkService(GrpcStreamServer::Accept accept) : accept_(std::move(accept)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() != kLinkMethod) return new RefusingStream;
    return new ServerStream(context, accept_);
  }

 private:
  const GrpcStreamServer::Accept accept_;
};

class Server final : public GrpcStreamServer {
 public:
  explicit Server(Accept accept) : service_(std::move(accept)) {}
  ~Server() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());  // cancels the calls that are left
    server_->Wait();
  }
  absl::Status Listen(const std::string& address, std::size_t max_frame_bytes) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(max_frame_bytes));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two workers must not share a port
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kKeepaliveTimeMs / 2);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen for KV transfers at ", address,
                       "; is the port taken, or the address not of this host?"));
    }
    return absl::OkStatus();
  }
  int port() const override { return port_; }

 private:
  LinkService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcStreamServer>> GrpcStreamServer::Start(
    const std::string& address, std::size_t max_frame_bytes, Accept accept) {
  auto server = std::make_unique<Server>(std::move(accept));
  absl::Status status = server->Listen(address, max_frame_bytes);
  if (!status.ok()) return status;
  return std::unique_ptr<GrpcStreamServer>(std::move(server));
}

}  // namespace baton::kvtransfer
