#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "session/session_server.h"

namespace baton {

// A router that welcomes every worker and keeps what it is told. Thread-safe.
class FakeRouter {
 public:
  FakeRouter() {
    session::SessionServer::Callbacks callbacks;
    callbacks.on_open = [this](session::SessionId id, const session::Hello& hello) {
      absl::MutexLock lock(&mutex_);
      const auto set = [this] { return server_ != nullptr; };
      mutex_.Await(absl::Condition(&set));
      server_->Send(id, session::Welcome{"test-router", absl::Milliseconds(20), {}});
      session_ = id;
      hellos_.push_back(hello);
    };
    callbacks.on_message = [this](session::SessionId, session::WorkerMessage message) {
      absl::MutexLock lock(&mutex_);
      if (const auto* heartbeat = std::get_if<session::Heartbeat>(&message)) {
        load_ = heartbeat->load;
      } else {
        messages_.push_back(std::move(message));
      }
    };
    callbacks.on_closed = [](session::SessionId) {};
    auto server = session::SessionServer::Start({"127.0.0.1:0"}, callbacks);
    absl::MutexLock lock(&mutex_);
    server_ = *std::move(server);
  }
  ~FakeRouter() { server_.reset(); }

  std::string address() const { return absl::StrCat("127.0.0.1:", server_->port()); }
  void Send(session::RouterMessage message) { server_->Send(session(), std::move(message)); }
  void CloseSession() { server_->Close(session()); }
  session::SessionId session() {
    absl::MutexLock lock(&mutex_);
    return session_;
  }

  struct Seen {
    const std::vector<session::Hello>& hellos;
    const std::vector<session::WorkerMessage>& messages;
    const session::WorkerLoad& load;  // of the latest heartbeat
  };
  // Waits until `condition` holds of what was seen.
  bool Wait(const std::function<bool(const Seen&)>& condition) {
    absl::MutexLock lock(&mutex_);
    const auto holds = [&] { return condition({hellos_, messages_, load_}); };
    return mutex_.AwaitWithTimeout(absl::Condition(&holds), absl::Seconds(20));
  }
  std::vector<session::WorkerMessage> messages() {
    absl::MutexLock lock(&mutex_);
    return messages_;
  }

 private:
  absl::Mutex mutex_;
  std::unique_ptr<session::SessionServer> server_;
  session::SessionId session_ = 0;
  std::vector<session::Hello> hellos_;
  std::vector<session::WorkerMessage> messages_;
  session::WorkerLoad load_;
};

}  // namespace baton
