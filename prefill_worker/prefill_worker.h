#pragma once
#include <memory>

#include "absl/status/statusor.h"
#include "worker/worker_config.h"
#include "worker/worker_service.h"

namespace baton::prefill_worker {

// A whole prefill worker in this process: model, engine thread, sessions with the routers,
// transfers to decode workers, admin server. Thread-safe.
class PrefillWorker final : public worker::Worker {
 public:
  // Loads the model (seconds to minutes) and starts serving.
  //   errors of EngineHost::Create and WorkerService::Start
  static absl::StatusOr<std::unique_ptr<PrefillWorker>> Start(const worker::WorkerConfig& config);
  // Ends everything at once; Drain first to let requests finish.
  ~PrefillWorker() override;

  bool Drain(absl::Time deadline) override;
  bool ready() const override;
  absl::Status failure() const override;
  session::WorkerLoad load() const override;
  int admin_port() const override;

 private:
  class Parts;
  explicit PrefillWorker(std::unique_ptr<Parts> parts);
  const std::unique_ptr<Parts> parts_;
};

}  // namespace baton::prefill_worker
