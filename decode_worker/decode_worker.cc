#include "decode_worker/decode_worker.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace baton::decode_worker {
namespace {

DecodeLimits MakeLimits(const worker::WorkerConfig& config, worker::EngineHost& engine) {
  DecodeLimits limits;
  limits.block_size = engine.layout().block_size;
  limits.num_blocks = engine.allocator().num_blocks();
  limits.vocab_size = engine.vocab_size();
  limits.max_context = engine.max_context();
  limits.window = engine.fingerprint().WidestWindow();
  limits.max_num_seqs = config.max_num_seqs;
  limits.max_num_batched_tokens = std::min(config.max_num_batched_tokens, engine.max_rows());
  limits.max_waiting = config.max_waiting;
  return limits;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecodeWorker>> DecodeWorker::Start(
    const worker::WorkerConfig& config, session::WorkerRole role) {
  BATON_CHECK(role != session::WorkerRole::kPrefill, "a decode worker has another role");
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<worker::EngineHost> engine,
                         worker::EngineHost::Create(config));
  auto decode_worker = absl::WrapUnique(new DecodeWorker(config, role, std::move(engine)));
  if (role == session::WorkerRole::kDecode) {
    BATON_RETURN_IF_ERROR(decode_worker->StartReceiver(config));
  }
  BATON_RETURN_IF_ERROR(decode_worker->StartServing(config));
  return decode_worker;
}

DecodeWorker::DecodeWorker(const worker::WorkerConfig& config, session::WorkerRole role,
                           std::unique_ptr<worker::EngineHost> engine)
    : identity_(worker::MakeWorkerIdentity(config, role)),
      engine_(std::move(engine)),
      service_(std::make_unique<worker::WorkerService>(config, role, identity_, *engine_, clock_)),
      metrics_(service_->registry()),
      transfer_metrics_(service_->registry(), "receive"),
      journal_(service_->metrics(), metrics_, service_->timelines()) {}

DecodeWorker::~DecodeWorker() {
  // No thread calls the scheduler any more. It then releases its transfers, so it goes before the
  // receiver, whose late callbacks find a closed queue, and the receiver before the memory.
  service_->Stop();
  scheduler_.reset();
  receiver_.reset();
}

absl::Status DecodeWorker::StartReceiver(const worker::WorkerConfig& config) {
  BATON_ASSIGN_OR_RETURN(kvtransfer::DeviceTransfer device,
                         engine_->MakeDeviceTransfer("receive", service_->registry()));
  kvtransfer::TransferReceiver::Options options;
  options.access = std::move(device.access);
  options.side_channels = std::move(device.side_channels);
  options.worker_id = identity_.worker_id;
  options.incarnation = identity_.incarnation;
  options.fingerprint = engine_->fingerprint();
  options.memory = engine_->transfer_memory();
  options.listen_address = absl::StrCat(config.host, ":", config.kv_port);
  options.advertise_host = config.advertise_host;
  options.lease = config.lease;
  options.allow_shared_memory = config.transport != "grpc";
  options.metrics = &transfer_metrics_;
  kvtransfer::TransferReceiver::Callbacks callbacks;
  worker::WorkerService* const service = service_.get();
  callbacks.on_complete = [service](std::uint64_t transfer_id,
                                    const kvtransfer::HandoffRecord& record,
                                    const kvtransfer::ReceiveReport& report) {
    service->Post(worker::ReceiveDone{transfer_id, record, report});
  };
  callbacks.on_failed = [service](std::uint64_t transfer_id, const absl::Status& status) {
    service->Post(worker::ReceiveFailed{transfer_id, status});
  };
  BATON_ASSIGN_OR_RETURN(receiver_, kvtransfer::TransferReceiver::Start(
                                        std::move(options), std::move(callbacks), clock_));
  return absl::OkStatus();
}

absl::Status DecodeWorker::StartServing(const worker::WorkerConfig& config) {
  scheduler_ = std::make_unique<DecodeScheduler>(
      MakeLimits(config, *engine_), DecodeScheduler::Parts{.clock = &clock_,
                                                           .allocator = &engine_->allocator(),
                                                           .outbox = &service_->outbox(),
                                                           .observer = &journal_,
                                                           .receiver = receiver_.get()});
  return service_->Start(*scheduler_);
}

}  // namespace baton::decode_worker
