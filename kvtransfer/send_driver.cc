#include "kvtransfer/send_driver.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "kvtransfer/metrics.h"

namespace baton::kvtransfer {
namespace {

// The longest the thread sleeps while transfers are open, so that a clock other than the machine's
// is looked at in time.
constexpr absl::Duration kLook = absl::Milliseconds(50);
// Frames for one link before the others get their turn.
constexpr int kFramesPerTurn = 4;

// Far beyond what breaking a link takes.
constexpr absl::Duration kCloseLimit = absl::Seconds(60);

std::string ToString(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace

SendDriver::SendDriver(Options options, std::unique_ptr<Connector> connector, const Clock& clock)
    : options_(std::move(options)),
      connector_(std::move(connector)),
      clock_(clock),
      table_(options_.table),
      thread_([this] { Run(); }) {}

SendDriver::~SendDriver() {
  {
    absl::MutexLock lock(&mutex_);
    table_.AbortAll(absl::CancelledError("prefill worker is shutting down"), clock_.Now());
    stopping_ = true;
    woken_ = true;
  }
  thread_.join();
}

std::uint64_t SendDriver::Begin(const TransferTicket& ticket,
                                std::vector<std::int32_t> source_blocks, DoneCallback done) {
  absl::MutexLock lock(&mutex_);
  const std::uint64_t key = table_.Begin(ticket, std::move(source_blocks), clock_.Now());
  callbacks_.emplace(key, std::move(done));
  woken_ = true;
  return key;
}

void SendDriver::PutLayer(std::uint64_t key, int layer, int first_block, int last_block) {
  absl::MutexLock lock(&mutex_);
  table_.Put(key, layer, first_block, last_block, clock_.Now());
  woken_ = true;
}

void SendDriver::Complete(std::uint64_t key, HandoffRecord record) {
  absl::MutexLock lock(&mutex_);
  table_.Complete(key, std::move(record), clock_.Now());
  woken_ = true;
}

void SendDriver::Abort(std::uint64_t key, absl::Status why) {
  absl::MutexLock lock(&mutex_);
  table_.Abort(key, std::move(why), clock_.Now());
  woken_ = true;
}

bool SendDriver::Idle() const { return table_.num_transfers() == 0 && callbacks_.empty(); }

void SendDriver::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_ && Idle()) break;
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_; };
      absl::Duration wait = absl::InfiniteDuration();
      if (const absl::Time next = table_.NextDeadline(); next != absl::InfiniteFuture()) {
        wait = std::clamp(next - clock_.Now(), absl::ZeroDuration(), kLook);
      }
      mutex_.AwaitWithTimeout(absl::Condition(&due), wait);
    }
    while (Turn()) {
    }
  }
  CloseAll();
}

bool SendDriver::Turn() {
  std::vector<LinkAction> actions;
  std::vector<SendDone> done;
  std::vector<LinkId> ready;
  {
    absl::MutexLock lock(&mutex_);
    woken_ = false;
    table_.OnTick(clock_.Now());
    actions = table_.TakeLinkActions();
    done = table_.TakeDone();
    for (const auto& [id, link] : links_) {
      if (link.up && !link.blocked) ready.push_back(id);
    }
  }
  bool worked = !actions.empty() || !done.empty();
  DoLinkActions(std::move(actions));
  Tell(std::move(done));
  for (const LinkId id : ready) worked = PumpLink(id) || worked;
  return worked;
}

TransportEvents SendDriver::EventsOf(LinkId id) {
  return {.on_up = [this, id](std::string_view transport) { OnUp(id, transport); },
          .on_message =
              [this, id](const Message& message) {
                absl::MutexLock lock(&mutex_);
                table_.OnMessage(id, message, clock_.Now());
                woken_ = true;
              },
          .on_writable =
              [this, id] {
                absl::MutexLock lock(&mutex_);
                const auto it = links_.find(id);
                if (it == links_.end()) return;
                ++it->second.num_writable;
                if (it->second.blocked) woken_ = true;
                it->second.blocked = false;
              },
          .on_released =
              [this](std::uint64_t put_id) {
                absl::MutexLock lock(&mutex_);
                table_.OnReleased(put_id, clock_.Now());
                woken_ = true;
              },
          .on_down = [this, id](const absl::Status& why) { OnDown(id, why); }};
}

void SendDriver::OnUp(LinkId id, std::string_view transport) {
  absl::MutexLock lock(&mutex_);
  const auto it = links_.find(id);
  if (it == links_.end()) return;
  it->second.up = true;
  table_.OnLinkUp(id, transport, clock_.Now());
  woken_ = true;
  if (options_.metrics != nullptr) options_.metrics->links_open.Add(1);
  log::Info("kv link up", {{"peer", it->second.peer.worker_id},
                           {"address", it->second.peer.address},
                           {"transport", transport}});
}

void SendDriver::OnDown(LinkId id, const absl::Status& why) {
  Link link;  // destroyed after the lock
  absl::MutexLock lock(&mutex_);
  const auto it = links_.find(id);
  if (it == links_.end()) return;
  link = std::move(it->second);
  links_.erase(it);
  table_.OnLinkDown(id, why, clock_.Now());
  woken_ = true;
  if (link.up && options_.metrics != nullptr) options_.metrics->links_open.Add(-1);
  const log::Level level = link.up && stopping_ ? log::Level::kInfo : log::Level::kWarn;
  log::Write(
      level, link.up ? "kv link down" : "kv link not established",
      {{"peer", link.peer.worker_id}, {"address", link.peer.address}, {"error", ToString(why)}});
}

void SendDriver::OpenOne(const OpenLink& open) {
  {
    absl::MutexLock lock(&mutex_);
    links_[open.link].peer = open.peer;
  }
  std::shared_ptr<Transport> transport = connector_->Connect(open.peer, EventsOf(open.link));
  absl::MutexLock lock(&mutex_);
  const auto it = links_.find(open.link);  // gone when it went down at once
  if (it != links_.end()) it->second.transport = std::move(transport);
}

void SendDriver::DoLinkActions(std::vector<LinkAction> actions) {
  for (const LinkAction& action : actions) {
    if (const auto* open = std::get_if<OpenLink>(&action)) {
      OpenOne(*open);
      continue;
    }
    const auto& broken = std::get<BreakLink>(action);
    std::shared_ptr<Transport> transport;
    {
      absl::MutexLock lock(&mutex_);
      const auto it = links_.find(broken.link);
      if (it != links_.end()) transport = it->second.transport;
    }
    if (transport != nullptr) transport->Abort(broken.why);
  }
}

bool SendDriver::Offer(Transport& transport, const Outgoing& outgoing) const {
  if (const auto* put = std::get_if<OutgoingPut>(&outgoing.frame)) return transport.TryPut(*put);
  return transport.TryNotify(std::get<OutgoingMessage>(outgoing.frame).message);
}

bool SendDriver::PumpLink(LinkId id) {
  for (int frame = 0; frame < kFramesPerTurn; ++frame) {
    std::shared_ptr<Transport> transport;
    std::optional<Outgoing> outgoing;
    std::uint64_t num_writable = 0;
    absl::Time offered;
    {
      absl::MutexLock lock(&mutex_);
      const auto it = links_.find(id);
      if (it == links_.end() || it->second.transport == nullptr) return false;
      transport = it->second.transport;
      num_writable = it->second.num_writable;
      offered = clock_.Now();
      outgoing = table_.Next(id, offered);
    }
    if (!outgoing.has_value()) return false;
    const bool taken = Offer(*transport, *outgoing);
    absl::MutexLock lock(&mutex_);
    if (taken) {
      table_.Accepted(*outgoing, offered);
      const auto* put = std::get_if<OutgoingPut>(&outgoing->frame);
      if (put != nullptr && options_.metrics != nullptr) {
        options_.metrics->bytes.Add(static_cast<double>(
            put->blocks.size() * put->plan->source_block_bytes(put->header.rank)));
      }
      continue;
    }
    table_.TakeBack(id, *outgoing, clock_.Now());
    const auto it = links_.find(id);
    // Unless room was made meanwhile, on_writable will say when.
    if (it == links_.end()) return false;
    it->second.blocked = it->second.num_writable == num_writable;
    return !it->second.blocked;
  }
  return true;
}

void SendDriver::Tell(std::vector<SendDone> done) {
  for (const SendDone& one : done) {
    DoneCallback callback;
    {
      absl::MutexLock lock(&mutex_);
      const auto it = callbacks_.find(one.key);
      callback = std::move(it->second);
      callbacks_.erase(it);
    }
    if (options_.metrics != nullptr) {
      options_.metrics->Count(one.status, one.report.acknowledged - one.report.first_byte);
    }
    if (!one.status.ok()) {
      const bool cancelled = one.status.code() == absl::StatusCode::kCancelled;  // an everyday end
      log::Write(cancelled ? log::Level::kInfo : log::Level::kWarn, "kv transfer not sent",
                 {{"peer", one.worker_id}, {"error", ToString(one.status)}});
    }
    callback(one.key, one.status, one.report);
  }
}

void SendDriver::CloseAll() {
  std::vector<std::shared_ptr<Transport>> transports;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, link] : links_) transports.push_back(link.transport);
  }
  for (const auto& transport : transports) {
    if (transport != nullptr) transport->Abort(absl::CancelledError("prefill worker closed"));
  }
  transports.clear();
  absl::MutexLock lock(&mutex_);
  const auto all_down = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return links_.empty(); };
  // They still call us; going on without them would let them call into freed memory.
  BATON_CHECK(mutex_.AwaitWithTimeout(absl::Condition(&all_down), kCloseLimit),
              "a KV link that was broken does not come down");
}

}  // namespace baton::kvtransfer
