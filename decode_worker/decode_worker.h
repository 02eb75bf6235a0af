#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "decode_worker/decode_scheduler.h"
#include "decode_worker/metrics.h"
#include "decode_worker/request_journal.h"
#include "kvtransfer/metrics.h"
#include "kvtransfer/transfer.h"
#include "session/messages.h"
#include "worker/engine_host.h"
#include "worker/worker_config.h"
#include "worker/worker_service.h"

namespace baton::decode_worker {

// A decode worker process: a loaded model, the scheduler over it, the receiving end of KV
// transfers, and what worker::WorkerService puts around them. With role kBoth it prefills every
// request itself and takes no transfers. Thread-safe.
class DecodeWorker final : public worker::Worker {
 public:
  // Loads the model (seconds), binds the ports and dials the routers. `role` is kDecode or kBoth.
  //   errors of EngineHost::Create, TransferReceiver::Start and WorkerService::Start
  static absl::StatusOr<std::unique_ptr<DecodeWorker>> Start(const worker::WorkerConfig& config,
                                                             session::WorkerRole role);
  // Stops at once: sessions end, requests with them. Drain first to let them finish.
  ~DecodeWorker() override;

  bool Drain(absl::Time deadline) override { return service_->Drain(deadline); }
  bool ready() const override { return service_->ready(); }
  absl::Status failure() const override { return service_->failure(); }
  session::WorkerLoad load() const override { return service_->load(); }
  int admin_port() const override { return service_->admin_port(); }
  int kv_port() const { return receiver_ == nullptr ? 0 : receiver_->port(); }  // 0: none

 private:
  DecodeWorker(const worker::WorkerConfig& config, session::WorkerRole role,
               std::unique_ptr<worker::EngineHost> engine);
  absl::Status StartReceiver(const worker::WorkerConfig& config);
  absl::Status StartServing(const worker::WorkerConfig& config);

  // In the order in which they depend on each other; the destructor takes them down in reverse,
  // after the threads of the service.
  const RealClock clock_;
  const worker::WorkerIdentity identity_;
  const std::unique_ptr<worker::EngineHost> engine_;
  const std::unique_ptr<worker::WorkerService> service_;
  DecodeMetrics metrics_;
  kvtransfer::TransferMetrics transfer_metrics_;
  RequestJournal journal_;
  std::unique_ptr<kvtransfer::TransferReceiver> receiver_;  // null with role kBoth
  std::unique_ptr<DecodeScheduler> scheduler_;
};

}  // namespace baton::decode_worker
