#include "worker/router_links.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "common/log.h"

namespace baton::worker {
namespace {

// A router that floods us with cancels is slowed down by so much at a time.
constexpr absl::Duration kCancelPatience = absl::Seconds(1);

// The id of a message that opens a request, or null.
const std::string* NewRequestId(const session::RouterMessage& message) {
  if (const auto* reserve = std::get_if<session::Reserve>(&message)) {
    return &reserve->spec.request_id;
  }
  if (const auto* prefill = std::get_if<session::Prefill>(&message)) {
    return &prefill->spec.request_id;
  }
  return nullptr;
}

}  // namespace

RouterLinks::RouterLinks(Options options, StepLoop& loop, const Clock& clock)
    : options_(std::move(options)),
      loop_(loop),
      clock_(clock),
      sessions_(options_.routers.size(), -1) {}

RouterLinks::~RouterLinks() { Stop(); }

void RouterLinks::Start(const std::string& admin_address) {
  // Held throughout, so that an early message finds its link in place.
  absl::MutexLock lock(&mutex_);
  for (int link = 0; link < static_cast<int>(options_.routers.size()); ++link) {
    session::WorkerLink::Options options;
    options.router_address = options_.routers[link];
    options.hello = options_.hello;
    options.hello.admin_address = admin_address;
    links_.push_back(session::WorkerLink::Start(std::move(options), CallbacksFor(link)));
  }
}

void RouterLinks::Stop() {
  std::vector<std::unique_ptr<session::WorkerLink>> links;
  {
    absl::MutexLock lock(&mutex_);
    links.swap(links_);
  }
  links.clear();  // not under the lock, which the last callbacks need
}

session::WorkerLink::Callbacks RouterLinks::CallbacksFor(int link) {
  return {
      .on_connected =
          [this, link](int session, const session::Welcome& welcome) {
            OnConnected({link, session}, welcome);
          },
      .on_message =
          [this, link](int session, session::RouterMessage message) {
            OnMessage({link, session}, std::move(message));
          },
      .on_disconnected =
          [this, link](int session) {
            OnDisconnected({link, session});
          },
      .load = [this] { return loop_.load(); },
  };
}

void RouterLinks::OnConnected(SessionKey session, const session::Welcome& welcome) {
  const std::string& address = options_.routers[session.link];
  if (!welcome.refusal.ok()) {
    log::Error("router refuses this worker", {{"router", welcome.router_id},
                                              {"address", address},
                                              {"reason", welcome.refusal.ToString()}});
    return;
  }
  log::Info("registered with router", {{"router", welcome.router_id}, {"address", address}});
  absl::MutexLock lock(&mutex_);
  sessions_[session.link] = session.session;
}

void RouterLinks::OnMessage(SessionKey from, session::RouterMessage message) {
  const std::string* id = NewRequestId(message);
  if (id == nullptr) {
    loop_.Post(RouterEvent{from, std::move(message), clock_.Now()}, kCancelPatience);
    return;
  }
  const std::string request_id = *id;
  if (loop_.TryPost(RouterEvent{from, std::move(message), clock_.Now()})) return;
  Send(from, session::RequestFailed{request_id, absl::ResourceExhaustedError(
                                                    "worker's event queue is full; retry later")});
}

void RouterLinks::OnDisconnected(SessionKey session) {
  {
    absl::MutexLock lock(&mutex_);
    if (sessions_[session.link] != session.session) return;  // it was refused
    sessions_[session.link] = -1;
  }
  loop_.Post(SessionLost{session});
}

void RouterLinks::Send(SessionKey to, session::WorkerMessage message) {
  absl::MutexLock lock(&mutex_);
  if (to.link < 0 || to.link >= static_cast<int>(links_.size())) return;
  links_[to.link]->Send(to.session, std::move(message));
}

void RouterLinks::BroadcastLoad() {
  const session::WorkerLoad load = loop_.load();
  absl::MutexLock lock(&mutex_);
  for (std::size_t link = 0; link < links_.size(); ++link) {
    if (sessions_[link] >= 0) links_[link]->Send(sessions_[link], session::Heartbeat{load});
  }
}

int RouterLinks::num_connected() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(
      std::count_if(sessions_.begin(), sessions_.end(), [](int session) { return session >= 0; }));
}

}  // namespace baton::worker
