#include "kvtransfer/cuda/nccl_pair.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/status.h"
#include "gpu/nccl_status.h"
#include "gpu/status.h"
#include "kvtransfer/cuda/kernels/copy_pieces.h"

namespace baton::kvtransfer::cuda {
absl::StatusOr<std::unique_ptr<NcclPair>> NcclPair::Start(const Options& options, Role role,
                                                          const ncclUniqueId& id,
                                                          PairResourceCache& cache) {
  std::unique_ptr<NcclPair> pair(new NcclPair(options, role, cache));
  BATON_CUDA_RETURN_IF_ERROR(cudaSetDevice(options.device));
  BATON_ASSIGN_OR_RETURN(pair->resources_, cache.Take(options.device, options.max_message_bytes));
  std::size_t total = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&pair->free_before_, &total));
  pair->started_ = absl::Now();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = 1;
  config.maxCTAs = options.max_channels;
  config.nChannelsPerNetPeer = options.max_channels;
  BATON_NCCL_RETURN_IF_ERROR(
      nullptr, ncclCommInitRankConfig(&pair->comm_, 2, id, static_cast<int>(role), &config));
  return pair;
}

NcclPair::~NcclPair() {
  BATON_CHECK(comm_ == nullptr, "an NCCL pair was destroyed with its communicator");
  if (resources_ != nullptr) cache_.GiveBack(std::move(resources_));
}

absl::Status NcclPair::Poll() {
  BATON_CUDA_RETURN_IF_ERROR(cudaSetDevice(options_.device));
  ncclResult_t state = ncclSuccess;
  BATON_NCCL_RETURN_IF_ERROR(comm_, ncclCommGetAsyncError(comm_, &state));
  BATON_RETURN_IF_ERROR(
      gpu::ToStatus(state, comm_, state_ == State::kConnecting ? "connecting" : "transfer"));
  if (state == ncclInProgress && state_ == State::kConnecting &&
      absl::Now() - started_ > options_.connect_timeout) {
    return absl::DeadlineExceededError(
        absl::StrFormat("NCCL pair not connected within %s; can the hosts reach each other?",
                        absl::FormatDuration(options_.connect_timeout)));
  }
  if (state == ncclSuccess && state_ == State::kConnecting) {
    std::size_t free = 0, total = 0;
    BATON_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
    memory_bytes_ = resources_->staging.bytes() + resources_->device_pieces.bytes() +
                    (free_before_ > free ? free_before_ - free : 0);
    state_ = State::kReady;
  }
  if (state == ncclSuccess && state_ == State::kLaunching) {
    BATON_RETURN_IF_ERROR(OnLaunched());
  }
  return CollectCompleted();
}

absl::Status NcclPair::CollectCompleted() {
  const std::size_t launched = under_way_.size() - (state_ == State::kLaunching ? 1 : 0);
  for (std::size_t i = 0; i < launched; ++i) {
    const cudaError_t done = cudaEventQuery(resources_->done[under_way_.front().slot].get());
    if (done == cudaErrorNotReady) break;
    BATON_RETURN_IF_ERROR(gpu::ToStatus(done, "cudaEventQuery"));
    under_way_.pop_front();
    ++num_completed_;
  }
  if (!under_way_.empty() && absl::Now() - under_way_.front().given > options_.message_timeout) {
    return absl::DeadlineExceededError(
        absl::StrFormat("peer lets KV blocks wait for more than %s",
                        absl::FormatDuration(options_.message_timeout)));
  }
  return absl::OkStatus();
}

absl::Status NcclPair::MakePieces(std::span<const ByteRun> runs, std::size_t slot) {
  if (runs.size() > resources_->max_pieces) {
    return absl::InternalError(absl::StrFormat("too many runs in a KV message: %d, at most %d",
                                               runs.size(), resources_->max_pieces));
  }
  CopyPiece* pieces = resources_->pieces.as<CopyPiece>() + slot * resources_->max_pieces;
  std::byte* staged = resources_->staging.data();
  int count = 0;
  std::uint64_t largest = 0;
  for (const ByteRun& run : runs) {
    if (run.at != nullptr) {
      const bool sends = role_ == Role::kSender;
      pieces[count++] = {
          .from = sends ? run.at : staged, .to = sends ? staged : run.at, .bytes = run.bytes};
      largest = std::max<std::uint64_t>(largest, run.bytes);
    }
    staged += run.bytes;
  }
  num_pieces_[slot] = count;
  largest_piece_[slot] = largest;
  return absl::OkStatus();
}

absl::Status NcclPair::CopyStaged(std::size_t slot) {
  if (num_pieces_[slot] == 0) return absl::OkStatus();
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(
      resources_->device_pieces.data(),
      resources_->pieces.as<CopyPiece>() + slot * resources_->max_pieces,
      num_pieces_[slot] * sizeof(CopyPiece), cudaMemcpyHostToDevice, resources_->stream.get()));
  BATON_CUDA_RETURN_IF_ERROR(CopyPieces(resources_->device_pieces.as<CopyPiece>(),
                                        num_pieces_[slot], largest_piece_[slot],
                                        resources_->stream.get()));
  return absl::OkStatus();
}

absl::Status NcclPair::Issue(std::span<const ByteRun> runs, bool direct) {
  std::size_t total = 0;
  for (const ByteRun& run : runs) total += run.bytes;
  const ByteRun whole{.at = resources_->staging.data(), .bytes = total};
  const std::span<const ByteRun> parts = direct ? runs : std::span<const ByteRun>(&whole, 1);
  BATON_NCCL_RETURN_IF_ERROR(comm_, ncclGroupStart());
  ncclResult_t result = ncclSuccess;
  for (const ByteRun& part : parts) {
    // What is dropped goes to staging memory, run over run.
    std::byte* at = part.at != nullptr ? part.at : resources_->staging.data();
    result = role_ == Role::kSender
                 ? ncclSend(at, part.bytes, ncclInt8, 1, comm_, resources_->stream.get())
                 : ncclRecv(at, part.bytes, ncclInt8, 0, comm_, resources_->stream.get());
    if (result != ncclSuccess) break;
  }
  const ncclResult_t ended = ncclGroupEnd();  // also after a failure: the group must not stay open
  BATON_RETURN_IF_ERROR(
      gpu::ToStatus(result, comm_, role_ == Role::kSender ? "ncclSend" : "ncclRecv"));
  return gpu::ToStatus(ended, comm_, "ncclGroupEnd");
}

absl::Status NcclPair::Transfer(std::span<const ByteRun> runs, bool direct) {
  BATON_CHECK(ready(), "a message was given to an NCCL pair that has no room");
  BATON_CUDA_RETURN_IF_ERROR(cudaSetDevice(options_.device));
  const std::size_t slot = num_given_ % kMaxUnderWay;
  num_pieces_[slot] = 0;
  if (!direct) {
    BATON_RETURN_IF_ERROR(MakePieces(runs, slot));
    if (role_ == Role::kSender) BATON_RETURN_IF_ERROR(CopyStaged(slot));
  }
  // From here on the device may touch the runs, even if a call fails.
  under_way_.push_back({.slot = slot, .given = absl::Now()});
  ++num_given_;
  state_ = State::kLaunching;
  BATON_RETURN_IF_ERROR(Issue(runs, direct));
  return Poll();
}

// A non-blocking communicator has launched what the group asked for: what follows it in the stream
// may be enqueued.
absl::Status NcclPair::OnLaunched() {
  const std::size_t slot = under_way_.back().slot;
  if (role_ == Role::kReceiver) BATON_RETURN_IF_ERROR(CopyStaged(slot));
  BATON_RETURN_IF_ERROR(resources_->done[slot].Record(resources_->stream.get()));
  state_ = State::kReady;
  return absl::OkStatus();
}

}  // namespace baton::kvtransfer::cuda
