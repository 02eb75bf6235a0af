#include "prefill_worker/prefill_worker.h"

#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "common/clock.h"
#include "common/status.h"
#include "kvtransfer/metrics.h"
#include "kvtransfer/transfer.h"
#include "prefill_worker/prefill_scheduler.h"
#include "worker/engine_host.h"

namespace baton::prefill_worker {
namespace {

PrefillLimits MakeLimits(const worker::WorkerConfig& config, const worker::EngineHost& engine) {
  PrefillLimits limits;
  limits.max_sequences = config.max_num_seqs;
  limits.max_batched_tokens = config.max_num_batched_tokens;
  limits.max_waiting = config.max_waiting;
  limits.max_context = engine.max_context();
  limits.vocab_size = engine.vocab_size();
  limits.fingerprint = engine.fingerprint();
  limits.cut = engine.cut();
  return limits;
}

kvtransfer::TransferSender::Options SenderOptions(const worker::WorkerConfig& config,
                                                  const worker::WorkerIdentity& identity,
                                                  const worker::EngineHost& engine,
                                                  kvtransfer::DeviceTransfer device,
                                                  kvtransfer::TransferMetrics& metrics) {
  kvtransfer::TransferSender::Options options;
  options.worker_id = identity.worker_id;
  options.incarnation = identity.incarnation;
  options.fingerprint = engine.fingerprint();
  options.memory = engine.transfer_memory();
  options.access = std::move(device.access);
  options.side_channels = std::move(device.side_channels);
  options.transport = config.transport;
  options.checksum = config.kv_checksum;
  options.metrics = &metrics;
  return options;
}

}  // namespace

// In the order of construction: each uses those above it.
class PrefillWorker::Parts {
 public:
  Parts(const worker::WorkerConfig& config, std::unique_ptr<worker::EngineHost> engine)
      : identity_(worker::MakeWorkerIdentity(config, session::WorkerRole::kPrefill)),
        engine_(std::move(engine)),
        service_(config, session::WorkerRole::kPrefill, identity_, *engine_, clock_),
        transfer_metrics_(service_.registry(), "send") {}
  ~Parts() {
    service_.Stop();
    sender_.reset();  // reads the pool until here; its last callbacks find a closed queue
  }

  absl::Status Start(const worker::WorkerConfig& config) {
    BATON_ASSIGN_OR_RETURN(kvtransfer::DeviceTransfer device,
                           engine_->MakeDeviceTransfer("send", service_.registry()));
    sender_ = kvtransfer::TransferSender::Create(
        SenderOptions(config, identity_, *engine_, std::move(device), transfer_metrics_), clock_);
    scheduler_.emplace(MakeLimits(config, *engine_),
                       PrefillScheduler::Parts{
                           .clock = &clock_,
                           .allocator = &engine_->allocator(),
                           .sender = sender_.get(),
                           .post = [this](worker::Event event) { service_.Post(std::move(event)); },
                           .outbox = &service_.outbox(),
                           .metrics = &service_.metrics(),
                           .timelines = &service_.timelines()});
    return service_.Start(*scheduler_);
  }
  worker::WorkerService& service() { return service_; }

 private:
  const RealClock clock_;
  const worker::WorkerIdentity identity_;
  const std::unique_ptr<worker::EngineHost> engine_;
  worker::WorkerService service_;
  kvtransfer::TransferMetrics transfer_metrics_;
  std::unique_ptr<kvtransfer::TransferSender> sender_;
  std::optional<PrefillScheduler> scheduler_;
};

PrefillWorker::PrefillWorker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

PrefillWorker::~PrefillWorker() = default;

absl::StatusOr<std::unique_ptr<PrefillWorker>> PrefillWorker::Start(
    const worker::WorkerConfig& config) {
  BATON_ASSIGN_OR_RETURN(auto engine, worker::EngineHost::Create(config));
  auto parts = std::make_unique<Parts>(config, std::move(engine));
  BATON_RETURN_IF_ERROR(parts->Start(config));
  return absl::WrapUnique(new PrefillWorker(std::move(parts)));
}

bool PrefillWorker::Drain(absl::Time deadline) { return parts_->service().Drain(deadline); }

bool PrefillWorker::ready() const { return parts_->service().ready(); }

absl::Status PrefillWorker::failure() const { return parts_->service().failure(); }

session::WorkerLoad PrefillWorker::load() const { return parts_->service().load(); }

int PrefillWorker::admin_port() const { return parts_->service().admin_port(); }

}  // namespace baton::prefill_worker
