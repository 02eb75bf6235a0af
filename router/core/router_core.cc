#include "router/core/router_core.h"

#include <utility>

#include "common/log.h"
#include "common/status.h"
#include "router/api/api_error.h"

namespace baton::router {
namespace {

constexpr std::size_t kQueueCapacity = 1 << 16;
constexpr absl::Duration kTickInterval = absl::Milliseconds(100);

}  // namespace

absl::StatusOr<std::unique_ptr<RouterCore>> RouterCore::Create(Options options, const Clock& clock,
                                                               DispatchObserver& observer) {
  BATON_ASSIGN_OR_RETURN(auto policy, MakePlacementPolicy(options.policy, options.placement));
  return std::unique_ptr<RouterCore>(
      new RouterCore(std::move(options), clock, std::move(policy), observer));
}

RouterCore::RouterCore(Options options, const Clock& clock, std::unique_ptr<PlacementPolicy> policy,
                       DispatchObserver& observer)
    : options_(std::move(options)),
      clock_(clock),
      policy_(std::move(policy)),
      dispatcher_(options_.dispatcher, clock, *policy_, *this, observer),
      events_(kQueueCapacity) {}

RouterCore::~RouterCore() {
  Stop(absl::UnavailableError("the router is shutting down; retry elsewhere"));
}

absl::Status RouterCore::Start(const std::string& session_address) {
  session::SessionServer::Options options;
  options.listen_address = session_address;
  BATON_ASSIGN_OR_RETURN(server_, session::SessionServer::Start(options, SessionCallbacks()));
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void RouterCore::Stop(const absl::Status& status) {
  if (!thread_.joinable()) return;
  PushKept([this, status](Dispatcher& dispatcher) {
    dispatcher.StartDraining();
    dispatcher.FailAll(status);
    events_.Close();
  });
  thread_.join();
}

// ---- from doors

absl::Status RouterCore::Submit(RequestKey key, std::vector<SequenceRequest> sequences,
                                std::function<void(const absl::Status&)> on_refused) {
  const bool pushed =
      PushLossy([key, sequences = std::move(sequences),
                 on_refused = std::move(on_refused)](Dispatcher& dispatcher) mutable {
        const absl::Status status = dispatcher.Submit(key, std::move(sequences));
        if (!status.ok()) on_refused(WithRetryAfter(status, dispatcher.RetryAfter()));
      });
  if (pushed) return absl::OkStatus();
  return absl::ResourceExhaustedError("the router is overwhelmed; retry later");
}

void RouterCore::Cancel(RequestKey key) {
  PushKept([key](Dispatcher& dispatcher) { dispatcher.Cancel(key); });
}

void RouterCore::Inspect(absl::AnyInvocable<void(const Dispatcher&)> look) {
  PushLossy([look = std::move(look)](Dispatcher& dispatcher) mutable { look(dispatcher); });
}

void RouterCore::StartDraining() {
  PushKept([](Dispatcher& dispatcher) { dispatcher.StartDraining(); });
}

bool RouterCore::PushLossy(Event event) {
  return events_.size() < kQueueCapacity / 2 && events_.TryPush(std::move(event));
}

void RouterCore::PushKept(Event event) {
  if (!events_.TryPush(std::move(event)) && !events_.closed()) {
    log::Error("the router core's queue is full; an event was lost");
  }
}

// ---- from workers

session::SessionServer::Callbacks RouterCore::SessionCallbacks() {
  session::SessionServer::Callbacks callbacks;
  callbacks.on_open = [this](SessionId session, const session::Hello& hello) {
    PushKept([session, hello](Dispatcher& dispatcher) { dispatcher.OnWorkerOpen(session, hello); });
  };
  callbacks.on_message = [this](SessionId session, session::WorkerMessage message) {
    if (PushLossy([session, message = std::move(message)](Dispatcher& dispatcher) mutable {
          dispatcher.OnWorkerMessage(session, std::move(message));
        })) {
      return;
    }
    if (!events_.closed()) {
      // A lost message would leave a hole in some stream; a lost session is handled.
      PushKept([this, session](Dispatcher& dispatcher) {
        dispatcher.OnWorkerClosed(session);
        server_->Close(session);
      });
    }
  };
  callbacks.on_closed = [this](SessionId session) {
    PushKept([session](Dispatcher& dispatcher) { dispatcher.OnWorkerClosed(session); });
  };
  return callbacks;
}

void RouterCore::Send(SessionId session, session::RouterMessage message) {
  server_->Send(session, std::move(message));
}

void RouterCore::Close(SessionId session) { server_->Close(session); }

// ---- the thread

void RouterCore::Run() {
  absl::Time next_tick = clock_.Now() + kTickInterval;
  std::size_t num_workers = 0;
  while (!events_.closed()) {
    // The queue waits by the machine's time; ticks look at the clock.
    for (Event& event : events_.PopAll(absl::Now() + kTickInterval)) event(dispatcher_);
    num_sequences_.store(dispatcher_.num_sequences(), std::memory_order_relaxed);
    const absl::Time now = clock_.Now();
    if (dispatcher_.registry().workers().size() != num_workers) {
      num_workers = dispatcher_.registry().workers().size();
      UpdateReadiness();
    }
    if (now < next_tick) continue;
    next_tick = now + kTickInterval;
    dispatcher_.Tick();
    UpdateReadiness();
    if (options_.on_tick) options_.on_tick(dispatcher_);
  }
  // Nothing runs any more: events left over hold sinks that must let go of their doors.
  events_.PopAll(absl::InfinitePast());
}

void RouterCore::UpdateReadiness() {
  const PlacementQuery smallest{1, 2, {}};
  const bool ready =
      !dispatcher_.draining() && policy_->PlaceDecode(smallest, dispatcher_.registry()).ok();
  if (ready_.exchange(ready) != ready && options_.on_readiness) options_.on_readiness(ready);
}

}  // namespace baton::router
