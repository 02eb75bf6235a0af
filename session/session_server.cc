#include "session/session_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "baton/v1/session.grpc.pb.h"
#include "common/log.h"
#include "session/channel_options.h"
#include "session/convert.h"
#include "session/write_queue.h"

namespace baton::session {
namespace {

constexpr absl::Duration kHelloTimeout = absl::Seconds(10);
// How long a session that the router closes may take to deliver what was already queued.
constexpr absl::Duration kCloseTimeout = absl::Seconds(1);
constexpr absl::Duration kReapInterval = absl::Milliseconds(250);

class ServerSession;

// What a session needs of its server.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  virtual const SessionServer::Callbacks& callbacks() const = 0;
  // The session's stream is over; forget it. The last call of a session.
  virtual void Remove(SessionId id) = 0;
};

// One worker's stream. Lives in the server's map until OnDone.
class ServerSession final : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::RouterMessage> {
 public:
  ServerSession(SessionHost& host, SessionId id, grpc::CallbackServerContext& context,
                std::size_t max_pending)
      : host_(host), id_(id), context_(context), queue_(max_pending) {}

  // After the server has put the session into its map.
  void Start() {
    absl::MutexLock lock(&mutex_);
    deadline_ = absl::Now() + kHelloTimeout;
    StartRead(&incoming_);
  }

  void Send(v1::RouterMessage message) {
    absl::MutexLock lock(&mutex_);
    if (closing_) return;
    switch (queue_.Push(std::move(message))) {
      case WriteQueue<v1::RouterMessage>::Result::kStart:
        StartWrite(&queue_.front());
        return;
      case WriteQueue<v1::RouterMessage>::Result::kQueued:
        return;
      case WriteQueue<v1::RouterMessage>::Result::kFull:
        break;
    }
    log::Warn("worker reads too slowly; session ended", {{"worker", worker_id_}, {"session", id_}});
    AbortLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many messages wait"));
  }

  // Ends the session once what is queued was written, or after kCloseTimeout.
  void Close() {
    absl::MutexLock lock(&mutex_);
    if (closing_) return;
    closing_ = true;
    deadline_ = absl::Now() + kCloseTimeout;
    if (!queue_.in_flight()) FinishLocked();
  }

  // Ends the session now.
  void Abort(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    AbortLocked(status);
  }

  // Aborts a session whose Hello or whose orderly end is overdue.
  void AbortIfOverdue(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    if (now < deadline_) return;
    deadline_ = absl::InfiniteFuture();
    AbortLocked(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                             closing_ ? "session closed" : "no Hello in time"));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Abort(grpc::Status::OK);  // the worker closed its side, or is gone
    absl::StatusOr<WorkerMessage> message = FromProto(incoming_);
    const absl::Status error = message.ok() ? Deliver(*std::move(message)) : message.status();
    if (!error.ok()) {
      log::Error("malformed message from worker; session ended",
                 {{"worker", worker_id_},
                  {"session", id_},
                  {"peer", context_.peer()},
                  {"error", std::string(error.message())}});
      Abort(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, std::string(error.message())));
    }
    absl::MutexLock lock(&mutex_);
    if (!finished_) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!ok) {
      closing_ = true;
      queue_.DropWaiting();
    }
    if (queue_.Done()) {
      StartWrite(&queue_.front());
    } else if (closing_) {
      FinishLocked();
    }
  }

  void OnDone() override {
    if (opened_) host_.callbacks().on_closed(id_);
    host_.Remove(id_);  // may destroy this
  }

 private:
  // On the reading thread. kInvalidArgument when Hello is missing or comes twice.
  absl::Status Deliver(WorkerMessage message) {
    const bool is_hello = std::holds_alternative<Hello>(message);
    if (is_hello == opened_) {
      return absl::InvalidArgumentError(is_hello ? "a second Hello" : "a message before Hello");
    }
    {
      absl::MutexLock lock(&mutex_);
      if (closing_) return absl::OkStatus();
      if (is_hello) {
        worker_id_ = std::get<Hello>(message).worker_id;
        deadline_ = absl::InfiniteFuture();
      }
    }
    if (is_hello) {
      opened_ = true;
      host_.callbacks().on_open(id_, std::get<Hello>(message));
    } else {
      host_.callbacks().on_message(id_, std::move(message));
    }
    return absl::OkStatus();
  }

  void AbortLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    closing_ = true;
    status_ = status;
    queue_.DropWaiting();
    // A write in flight must come back before Finish; cancelling makes it.
    if (queue_.in_flight()) {
      context_.TryCancel();
    } else {
      FinishLocked();
    }
  }

  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    Finish(status_);
  }

  SessionHost& host_;
  const SessionId id_;
  grpc::CallbackServerContext& context_;
  v1::WorkerMessage incoming_;
  std::string worker_id_;  // written once by the reading thread under mutex_
  bool opened_ = false;    // of the reading thread, which OnDone follows
  absl::Mutex mutex_;
  WriteQueue<v1::RouterMessage> queue_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

class SessionServerImpl final : public SessionServer,
                                private SessionHost,
                                private v1::RouterSession::CallbackService {
 public:
  SessionServerImpl(Options options, Callbacks callbacks)
      : options_(std::move(options)), callbacks_(std::move(callbacks)) {}

  absl::Status Listen() {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    // Two routers on one port would each get half of the workers.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kMinPingIntervalMs);
    builder.AddListeningPort(options_.listen_address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<v1::RouterSession::CallbackService*>(this));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen for workers on ",
                                                 options_.listen_address, "; is the port in use?"));
    }
    reaper_ = std::thread([this] { Reap(); });
    return absl::OkStatus();
  }

  ~SessionServerImpl() override {
    if (server_ == nullptr) return;
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    for (const auto& session : Sessions()) {
      session->Abort(grpc::Status(grpc::StatusCode::UNAVAILABLE, "router is shutting down"));
    }
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
    if (reaper_.joinable()) reaper_.join();
    absl::MutexLock lock(&mutex_);
    const auto empty = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return sessions_.empty(); };
    mutex_.Await(absl::Condition(&empty));
  }

  void Send(SessionId id, RouterMessage message) override {
    const std::shared_ptr<ServerSession> session = Find(id);
    if (session != nullptr) session->Send(ToProto(message));
  }

  void Close(SessionId id) override {
    const std::shared_ptr<ServerSession> session = Find(id);
    if (session != nullptr) session->Close();
  }

  int port() const override { return port_; }

 private:
  grpc::ServerBidiReactor<v1::WorkerMessage, v1::RouterMessage>* Connect(
      grpc::CallbackServerContext* context) override {
    std::shared_ptr<ServerSession> session;
    bool stopping;
    {
      absl::MutexLock lock(&mutex_);
      const SessionId id = next_id_++;
      SessionHost& host = *this;
      session = std::make_shared<ServerSession>(host, id, *context, options_.max_pending);
      sessions_.emplace(id, session);
      stopping = stopping_;
    }
    if (stopping) {
      session->Abort(grpc::Status(grpc::StatusCode::UNAVAILABLE, "router is shutting down"));
    } else {
      session->Start();
    }
    return session.get();  // kept by the map until its OnDone
  }

  // Ends sessions that are overdue, until the server stops.
  void Reap() {
    while (true) {
      for (const auto& session : Sessions()) session->AbortIfOverdue(absl::Now());
      absl::MutexLock lock(&mutex_);
      const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping), kReapInterval)) return;
    }
  }

  const Callbacks& callbacks() const override { return callbacks_; }

  void Remove(SessionId id) override {
    std::shared_ptr<ServerSession> session;  // destroyed after the lock is given back
    absl::MutexLock lock(&mutex_);
    const auto it = sessions_.find(id);
    session = std::move(it->second);
    sessions_.erase(it);
  }

  std::shared_ptr<ServerSession> Find(SessionId id) const {
    absl::MutexLock lock(&mutex_);
    const auto it = sessions_.find(id);
    return it == sessions_.end() ? nullptr : it->second;
  }

  std::vector<std::shared_ptr<ServerSession>> Sessions() const {
    absl::MutexLock lock(&mutex_);
    std::vector<std::shared_ptr<ServerSession>> sessions;
    for (const auto& [id, session] : sessions_) sessions.push_back(session);
    return sessions;
  }

  const Options options_;
  const Callbacks callbacks_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::thread reaper_;
  mutable absl::Mutex mutex_;
  SessionId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<SessionId, std::shared_ptr<ServerSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SessionServer>> SessionServer::Start(Options options,
                                                                    Callbacks callbacks) {
  auto server = std::make_unique<SessionServerImpl>(std::move(options), std::move(callbacks));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace baton::session
