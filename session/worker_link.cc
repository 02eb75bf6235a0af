#include "session/worker_link.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "baton/v1/session.grpc.pb.h"
#include "common/log.h"
#include "session/channel_options.h"
#include "session/convert.h"
#include "session/write_queue.h"

namespace baton::session {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(2);
// How long a link being destroyed waits for its last messages to leave, and again for the router
// to end the stream.
constexpr absl::Duration kFlushTime = absl::Seconds(1);

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           absl::Duration connect_timeout) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Despite its name, how long one attempt may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(connect_timeout)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Links of one process must not share a connection: one that stalls would stall the others.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// One stream to the router. Started once; `on_done` is the last thing called.
class Connection final : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::RouterMessage> {
 public:
  Connection(v1::RouterSession::Stub& stub, std::size_t max_pending,
             std::function<bool(const v1::RouterMessage&)> on_message,
             std::function<void(grpc::Status)> on_done)
      : stub_(stub),
        on_message_(std::move(on_message)),
        on_done_(std::move(on_done)),
        queue_(max_pending) {}

  void Start(const Hello& hello) {
    stub_.async()->Connect(&context_, this);
    AddHold();  // until the read side ends: Send starts writes from other threads
    Send(ToProto(WorkerMessage(hello)));
    StartRead(&incoming_);
    StartCall();
  }

  // False when too many messages wait.
  bool Send(v1::WorkerMessage message) {
    absl::MutexLock lock(&mutex_);
    if (closed_ || half_closed_) return true;
    switch (queue_.Push(std::move(message))) {
      case WriteQueue<v1::WorkerMessage>::Result::kStart:
        StartWrite(&queue_.front());
        return true;
      case WriteQueue<v1::WorkerMessage>::Result::kQueued:
        return true;
      case WriteQueue<v1::WorkerMessage>::Result::kFull:
        break;
    }
    return false;
  }

  // Waits until everything was written, or the stream ended, then says that no more comes.
  void HalfClose(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    const auto written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || !queue_.in_flight();
    };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&written), deadline) || closed_) return;
    half_closed_ = true;
    StartWritesDone();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        absl::MutexLock lock(&mutex_);
        closed_ = true;
        queue_.DropWaiting();
      }
      RemoveHold();
      return;
    }
    if (!on_message_(incoming_)) Cancel();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!ok) queue_.DropWaiting();
    if (queue_.Done() && !closed_) StartWrite(&queue_.front());
  }

  void OnDone(const grpc::Status& status) override {
    const std::function<void(grpc::Status)> on_done = on_done_;
    on_done(status);  // this may be destroyed meanwhile
  }

 private:
  v1::RouterSession::Stub& stub_;
  const std::function<bool(const v1::RouterMessage&)> on_message_;
  const std::function<void(grpc::Status)> on_done_;
  grpc::ClientContext context_;
  v1::RouterMessage incoming_;
  absl::Mutex mutex_;
  WriteQueue<v1::WorkerMessage> queue_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

class WorkerLinkImpl final : public WorkerLink {
 public:
  WorkerLinkImpl(Options options, Callbacks callbacks)
      : options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        channel_(MakeChannel(options_.router_address, options_.connect_timeout)),
        stub_(v1::RouterSession::NewStub(channel_)),
        random_(std::random_device{}()),
        thread_([this] { Run(); }) {}

  ~WorkerLinkImpl() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }

  void Send(int session, WorkerMessage message) override {
    std::shared_ptr<Connection> connection;
    {
      absl::MutexLock lock(&mutex_);
      if (!connected_ || session != session_) return;
      connection = connection_;
    }
    Deliver(*connection, std::move(message));
  }

  bool connected() const override {
    absl::MutexLock lock(&mutex_);
    return connected_;
  }

 private:
  void Run() {
    absl::Duration pause = kFirstPause;
    while (true) {
      const bool served = RunSession();
      pause = served ? kFirstPause : std::min(pause * 2, kLongestPause);
      absl::MutexLock lock(&mutex_);
      const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
      const double jitter = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping), pause * jitter)) return;
    }
  }

  // Dials and stays until the stream has ended. True if the router accepted this worker.
  bool RunSession() {
    auto connection = NewConnection();
    if (connection == nullptr) return false;
    grpc::experimental::ChannelResetConnectionBackoff(channel_.get());  // the pause is ours
    connection->Start(options_.hello);
    if (!AwaitWelcome()) connection->Cancel();
    const bool served = Beat(*connection);
    End(*connection, served);
    return served;
  }

  std::shared_ptr<Connection> NewConnection() {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return nullptr;
    const int session = ++session_;
    welcome_.reset();
    done_.reset();
    connection_ = std::make_shared<Connection>(
        *stub_, options_.max_pending,
        [this, session](const v1::RouterMessage& message) { return OnMessage(session, message); },
        [this](grpc::Status status) {
          absl::MutexLock inner(&mutex_);
          done_ = std::move(status);
        });
    return connection_;
  }

  // Waits for the router's answer; false on a timeout, an end or a stop.
  bool AwaitWelcome() {
    absl::MutexLock lock(&mutex_);
    const auto answered = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return welcome_.has_value() || done_.has_value() || stopping_;
    };
    mutex_.AwaitWithTimeout(absl::Condition(&answered), options_.connect_timeout);
    return welcome_.has_value();
  }

  // Sends heartbeats until the stream ends or the link stops. Returns whether it was accepted.
  bool Beat(Connection& connection) {
    while (true) {
      absl::Duration interval = absl::InfiniteDuration();
      {
        absl::MutexLock lock(&mutex_);
        if (connected_) interval = welcome_->heartbeat_interval;
      }
      if (interval != absl::InfiniteDuration()) {
        WorkerLoad load;
        {
          absl::MutexLock callback_lock(&callback_mutex_);
          load = callbacks_.load();
        }
        Deliver(connection, Heartbeat{load});
      }
      absl::MutexLock lock(&mutex_);
      const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return done_.has_value() || stopping_;
      };
      if (mutex_.AwaitWithTimeout(absl::Condition(&over), interval)) return connected_;
    }
  }

  // After this no callback of the session runs any more.
  void End(Connection& connection, bool served) {
    bool ended;
    {
      absl::MutexLock lock(&mutex_);
      ended = done_.has_value();
    }
    if (!ended && served) {
      connection.HalfClose(absl::Now() + kFlushTime);
      AwaitDone(absl::Now() + kFlushTime);
    }
    connection.Cancel();
    AwaitDone(absl::InfiniteFuture());
    grpc::Status status;
    int session;
    bool refused;
    {
      absl::MutexLock lock(&mutex_);
      connected_ = false;
      connection_.reset();
      status = *done_;
      session = session_;
      refused = std::exchange(refused_, false);
      ended = stopping_;
    }
    if (!ended && !refused) LogEnd(served, status);
    if (!served && !refused) return;
    absl::MutexLock callback_lock(&callback_mutex_);
    callbacks_.on_disconnected(session);
  }

  void AwaitDone(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return done_.has_value(); };
    mutex_.AwaitWithDeadline(absl::Condition(&done), deadline);
  }

  // One line when the router is lost or cannot be reached, not one per attempt.
  void LogEnd(bool served, const grpc::Status& status) {
    if (!served && status.error_message() == last_error_) return;
    last_error_ = served ? "" : status.error_message();
    log::Warn(served ? "session with router ended" : "cannot open session with router",
              {{"router", options_.router_address},
               {"code", static_cast<int>(status.error_code())},
               {"reason", status.error_message()}});
  }

  // On a gRPC thread, in order. False breaks the session off.
  bool OnMessage(int session, const v1::RouterMessage& wire) {
    absl::StatusOr<RouterMessage> message = FromProto(wire);
    if (!message.ok()) {
      log::Error("malformed message from router; session ended",
                 {{"router", options_.router_address},
                  {"error", std::string(message.status().message())}});
      return false;
    }
    if (auto* welcome = std::get_if<Welcome>(&*message)) return OnWelcome(session, *welcome);
    {
      absl::MutexLock lock(&mutex_);
      if (!connected_) return false;  // spoke before its Welcome
    }
    absl::MutexLock callback_lock(&callback_mutex_);
    callbacks_.on_message(session, *std::move(message));
    return true;
  }

  bool OnWelcome(int session, const Welcome& welcome) {
    const bool accepted = welcome.refusal.ok();
    absl::MutexLock callback_lock(&callback_mutex_);
    {
      absl::MutexLock lock(&mutex_);
      if (welcome_.has_value()) return false;
      welcome_ = welcome;
      connected_ = accepted;
      refused_ = !accepted;
    }
    callbacks_.on_connected(session, welcome);
    return accepted;
  }

  void Deliver(Connection& connection, WorkerMessage message) {
    if (connection.Send(ToProto(message))) return;
    log::Warn("router reads too slowly; session broken off",
              {{"router", options_.router_address}, {"max_pending", options_.max_pending}});
    connection.Cancel();
  }

  const Options options_;
  const Callbacks callbacks_;
  // One for all sessions, and the last to go: a channel whose last reference is dropped on a gRPC
  // thread makes that thread wait for itself.
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::RouterSession::Stub> stub_;
  std::mt19937 random_;         // of thread_
  std::string last_error_;      // of thread_
  absl::Mutex callback_mutex_;  // one callback at a time; taken before mutex_
  mutable absl::Mutex mutex_;
  int session_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  std::optional<Welcome> welcome_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> done_ ABSL_GUARDED_BY(mutex_);
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;  // the Welcome was a refusal
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace

std::unique_ptr<WorkerLink> WorkerLink::Start(Options options, Callbacks callbacks) {
  return std::make_unique<WorkerLinkImpl>(std::move(options), std::move(callbacks));
}

}  // namespace baton::session
