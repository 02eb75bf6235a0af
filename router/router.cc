#include "router/router.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/http/server.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status.h"
#include "router/core/router_core.h"
#include "router/grpc/grpc_front.h"
#include "router/http/http_front.h"
#include "router/request_log.h"

namespace baton::router {
namespace {

constexpr std::size_t kMaxWaitingTexts = 1024;

std::string RouterId() {
  char host[256] = "router";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, "-", getpid());
}

class RouterImpl final : public Router {
 public:
  RouterImpl(const RouterConfig& config, std::unique_ptr<const ServedModel> model)
      : config_(config), model_(std::move(model)) {}
  ~RouterImpl() override { Stop(); }

  absl::Status Open() {
    BATON_ASSIGN_OR_RETURN(core_, RouterCore::Create(CoreOptions(), clock_, request_log_));
    BATON_RETURN_IF_ERROR(
        core_->Start(absl::StrFormat("%s:%d", SessionHost(), config_.session_port)));
    text_pool_ = std::make_unique<TextPool>(config_.text_threads, kMaxWaitingTexts);
    DoorContext context{*model_, *core_, *text_pool_,     metrics_,
                        clock_,  {},     config_.api_key, config_.request_timeout};
    if (config_.default_max_tokens > 0) {
      context.prepare = {config_.default_max_tokens, config_.default_max_tokens};
    }
    context.max_unread_bytes = static_cast<std::size_t>(config_.max_unread_bytes);
    context.max_choices = std::min(config_.max_concurrent_requests, config_.max_waiting_requests);
    if (config_.grpc_port >= 0) {
      BATON_ASSIGN_OR_RETURN(auto front,
                             GrpcFront::Start(context, config_.host, config_.grpc_port));
      absl::MutexLock lock(&mutex_);
      grpc_ = std::move(front);
      grpc_->SetServing(core_->ready());
    }
    http_front_ = std::make_unique<HttpFront>(context, timelines_, registry_);
    http::ServerOptions options;
    options.host = config_.host;
    options.port = config_.port;
    options.num_threads = config_.http_threads;
    options.max_body_bytes = static_cast<std::size_t>(config_.max_body_bytes);
    options.max_connections = config_.max_connections;
    BATON_ASSIGN_OR_RETURN(
        http_, http::Server::Start(options, [this](http::Request request,
                                                   std::shared_ptr<http::Response> response) {
          http_front_->Handle(std::move(request), std::move(response));
        }));
    log::Info("router serves", {{"model", model_->names.front()},
                                {"http_port", http_port()},
                                {"grpc_port", grpc_port()},
                                {"session_port", session_port()},
                                {"max_model_len", model_->max_context}});
    return absl::OkStatus();
  }

  bool Drain(absl::Time deadline) override {
    http_->StopAccepting();
    SetServing(false);
    core_->StartDraining();
    while (core_->num_sequences() > 0 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    return core_->num_sequences() == 0;
  }

  void Stop() override {
    if (std::exchange(stopped_, true)) return;
    if (http_ != nullptr) http_->StopAccepting();
    // Doors first stop handing in, then the core lets go of their outputs, then the doors close.
    if (text_pool_ != nullptr) text_pool_->Stop();
    if (core_ != nullptr) {
      core_->Stop(absl::UnavailableError("the router is shutting down; retry elsewhere"));
    }
    http_.reset();
    if (grpc_ != nullptr) grpc_->Shutdown(absl::Seconds(1));
  }

  int http_port() const override { return http_->port(); }
  int grpc_port() const override { return grpc_ == nullptr ? 0 : grpc_->port(); }
  int session_port() const override { return core_->session_port(); }
  bool ready() const override { return core_->ready(); }

 private:
  std::string SessionHost() const {
    const std::string& host = config_.session_host.empty() ? config_.host : config_.session_host;
    return host.find(':') == std::string::npos ? host : "[" + host + "]";
  }

  RouterCore::Options CoreOptions() {
    RouterCore::Options options;
    options.dispatcher.router_id = RouterId();
    options.dispatcher.model_fingerprint = model_->fingerprint;
    options.dispatcher.max_sequences = config_.max_concurrent_requests;
    options.dispatcher.max_waiting = config_.max_waiting_requests;
    options.dispatcher.heartbeat_interval = config_.heartbeat_interval;
    options.dispatcher.max_missed_heartbeats = config_.heartbeat_misses;
    options.policy = config_.placement_policy;
    options.placement.local_prefill_threshold = config_.local_prefill_threshold;
    options.placement.local_prefill_fallback = config_.local_prefill_fallback;
    options.placement.seed = static_cast<std::uint64_t>(absl::ToUnixNanos(absl::Now()));
    options.on_readiness = [this](bool ready) {
      log::Info(ready ? "router is ready" : "router is not ready: a kind of worker is missing");
      SetServing(ready);
    };
    options.on_tick = [this](const Dispatcher& dispatcher) { metrics_.UpdateGauges(dispatcher); };
    return options;
  }

  void SetServing(bool serving) {
    absl::MutexLock lock(&mutex_);
    if (grpc_ != nullptr) grpc_->SetServing(serving);
  }

  const RouterConfig config_;
  const std::unique_ptr<const ServedModel> model_;
  RealClock clock_;
  metrics::Registry registry_;
  RouterMetrics metrics_{registry_};
  TimelineStore timelines_{static_cast<std::size_t>(config_.timeline_capacity)};
  RequestLog request_log_{metrics_, timelines_};
  // Destroyed in the opposite order: doors, text pool, core.
  std::unique_ptr<RouterCore> core_;
  std::unique_ptr<TextPool> text_pool_;
  std::unique_ptr<HttpFront> http_front_;
  absl::Mutex mutex_;
  std::unique_ptr<GrpcFront> grpc_;  // set once, before HTTP serves; readiness may come earlier
  std::unique_ptr<http::Server> http_;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const RouterConfig& config) {
  if (config.model.empty()) {
    return absl::InvalidArgumentError("no model: set --model to a .gguf file or a directory");
  }
  ServedModel::Options options{config.model, config.served_model_name, config.max_model_len,
                               config.chat_template};
  BATON_ASSIGN_OR_RETURN(auto model, ServedModel::Load(options));
  auto router = std::make_unique<RouterImpl>(config, std::move(model));
  BATON_RETURN_IF_ERROR(router->Open());
  return router;
}

}  // namespace baton::router
