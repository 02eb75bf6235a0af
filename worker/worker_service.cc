#include "worker/worker_service.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/status.h"

namespace baton::worker {
namespace {

constexpr std::size_t kTimelines = 2048;  // recent requests kept for /debug/requests
// How long requests ended at the drain's deadline may take to be told and freed.
constexpr absl::Duration kEndTime = absl::Seconds(5);

const char* RoleName(session::WorkerRole role) {
  switch (role) {
    case session::WorkerRole::kPrefill:
      return "prefill";
    case session::WorkerRole::kDecode:
      return "decode";
    case session::WorkerRole::kBoth:
      break;
  }
  return "both";
}

RouterLinks::Options LinkOptions(const WorkerConfig& config, session::WorkerRole role,
                                 const WorkerIdentity& identity, EngineHost& engine) {
  RouterLinks::Options options;
  options.routers = config.routers;
  options.hello.worker_id = identity.worker_id;
  options.hello.incarnation = identity.incarnation;
  options.hello.role = role;
  options.hello.fingerprint = engine.fingerprint();
  options.hello.cut = engine.cut();
  options.hello.served_model = engine.model_name();
  options.hello.vocab_size = engine.vocab_size();
  // A pool smaller than the context bounds a sequence too.
  options.hello.max_context =
      std::min(engine.max_context(), engine.allocator().num_blocks() * config.block_size);
  options.hello.max_sequences = config.max_num_seqs;
  options.hello.num_blocks = engine.allocator().num_blocks();
  return options;
}

}  // namespace

WorkerIdentity MakeWorkerIdentity(const WorkerConfig& config, session::WorkerRole role) {
  WorkerIdentity identity;
  identity.incarnation = static_cast<std::uint64_t>(absl::ToUnixNanos(absl::Now()));
  identity.worker_id = config.worker_id;
  if (identity.worker_id.empty()) {
    std::array<char, 256> host = {};
    if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
    identity.worker_id = absl::StrCat(RoleName(role), "-", host.data(), "-", getpid());
  }
  return identity;
}

WorkerService::WorkerService(const WorkerConfig& config, session::WorkerRole role,
                             const WorkerIdentity& identity, EngineHost& engine, const Clock& clock)
    : config_(config),
      role_(role),
      identity_(identity),
      clock_(clock),
      metrics_(registry_),
      timelines_(kTimelines),
      loop_({.nice = config.nice, .health = [&engine] { return engine.health(); }}, engine,
            metrics_, clock),
      links_(std::make_unique<RouterLinks>(LinkOptions(config, role, identity, engine), loop_,
                                           clock)) {
  registry_.OnCollect([this] { metrics_.connected_routers.Set(links_->num_connected()); });
}

WorkerService::~WorkerService() { Stop(); }

absl::Status WorkerService::Start(Scheduler& scheduler) {
  AdminServer::Sources sources;
  sources.registry = &registry_;
  sources.timelines = &timelines_;
  sources.not_ready = [this] { return NotReady(); };
  sources.state = [this] { return State(); };
  BATON_ASSIGN_OR_RETURN(
      admin_, AdminServer::Start({config_.host, config_.admin_port}, std::move(sources)));
  loop_.Start(scheduler);
  {
    absl::MutexLock lock(&mutex_);
    started_ = true;
  }
  links_->Start(absl::StrCat(config_.advertise_host, ":", admin_->port()));
  log::Info(
      "worker started",
      {{"worker", identity_.worker_id}, {"role", RoleName(role_)}, {"admin_port", admin_->port()}});
  return absl::OkStatus();
}

void WorkerService::Stop() {
  links_->Stop();
  loop_.Stop();
  admin_.reset();
}

bool WorkerService::Drain(absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
  }
  log::Info("draining", {{"worker", identity_.worker_id}, {"running", load().running}});
  loop_.Post(DrainStarted{});
  loop_.Flush(deadline);
  links_->BroadcastLoad();
  const bool finished = loop_.WaitUntilIdle(deadline);
  if (!finished) {
    loop_.Post(EndAll{absl::UnavailableError("worker stopped before the request had finished")});
    loop_.WaitUntilIdle(absl::Now() + kEndTime);
  }
  log::Info("drained", {{"worker", identity_.worker_id}, {"all_finished", finished}});
  return finished;
}

std::string WorkerService::NotReady() const {
  {
    absl::MutexLock lock(&mutex_);
    if (!started_) return "starting";
    if (draining_) return "draining";
  }
  if (!failure().ok()) return "the engine has failed";
  return links_->num_connected() > 0 ? "" : "no router is connected";
}

std::string WorkerService::State() const {
  const session::WorkerLoad load = loop_.load();
  const session::BlockBooks& blocks = load.blocks;
  return absl::StrFormat(
      "{\"worker_id\": \"%s\", \"incarnation\": %d, \"role\": \"%s\", \"running\": %d, "
      "\"waiting\": %d, \"waiting_tokens\": %d, \"draining\": %s, \"steps\": %d, "
      "\"connected_routers\": %d, \"blocks\": {\"free\": %d, \"cached\": %d, \"reserved\": %d, "
      "\"active\": %d, \"total\": %d}}\n",
      identity_.worker_id, identity_.incarnation, RoleName(role_), load.running, load.waiting,
      load.waiting_tokens, load.draining ? "true" : "false", loop_.num_steps(),
      links_->num_connected(), blocks.free, blocks.cached, blocks.reserved, blocks.active,
      blocks.total);
}

}  // namespace baton::worker
