#include "engine/ops/cuda/rank_link.h"

#include <algorithm>

#include "common/status.h"
#include "gpu/status.h"

namespace baton::engine::cuda {
namespace {

// Products write rows at multiples of 32 bytes.
constexpr int kLogitsUnit = 8;

}  // namespace

absl::StatusOr<RankLink> RankLink::Create(const ModelPlan& whole, int rank, int world_size,
                                          Communicator* communicator,
                                          const RankLinkOptions& options) {
  RankLink link;
  link.rank_ = rank;
  link.world_size_ = world_size;
  link.hidden_ = whole.hidden_size;
  link.vocab_size_ = whole.vocab_size;
  link.one_shot_bytes_ = options.one_shot_bytes;
  link.communicator_ = communicator;
  if (link.alone()) return link;
  int widest = 0;
  for (int other = 0; other < world_size; ++other) {
    BATON_ASSIGN_OR_RETURN(const Shard shard, MakeShard(whole, world_size, other));
    link.vocab_.push_back(shard.vocab);
    widest = std::max(widest, shard.vocab.size());
  }
  link.logits_stride_ = (widest + kLogitsUnit - 1) / kLogitsUnit * kLogitsUnit;
  const std::size_t most = link.Count(options.max_rows) * sizeof(float);
  const std::size_t gathered = std::min(most, options.one_shot_bytes) * world_size;
  BATON_ASSIGN_OR_RETURN(link.parts_, gpu::DeviceBuffer::Create(std::max(most, gathered)));
  BATON_ASSIGN_OR_RETURN(
      link.logits_, gpu::DeviceBuffer::Create(sizeof(float) * world_size * link.logits_stride_ *
                                              options.max_samples));
  return link;
}

bool RankLink::OneShot(int num_rows) const {
  return Count(num_rows) * sizeof(float) <= one_shot_bytes_;
}

float* RankLink::Part(int num_rows) const {
  return parts_.as<float>() + (OneShot(num_rows) ? rank_ * Count(num_rows) : 0);
}

absl::Status RankLink::AddParts(Addition addition, int num_rows, float* x, cudaStream_t stream) {
  const std::size_t count = Count(num_rows);
  float* const own = Part(num_rows);
  if (OneShot(num_rows)) {
    BATON_RETURN_IF_ERROR(communicator_->AllGather(own, count * sizeof(float), parts_.as<float>()));
    addition.num_parts = world_size_;
  } else {
    BATON_RETURN_IF_ERROR(communicator_->AllReduceSum(own, own, count));
    addition.num_parts = 1;
  }
  addition.parts = parts_.as<float>();
  addition.part_stride = count;
  BATON_CUDA_RETURN_IF_ERROR(AddToResidual(addition, num_rows, hidden_, x, stream));
  return absl::OkStatus();
}

absl::Status RankLink::SumRows(int num_rows, float* x) {
  return communicator_->AllReduceSum(x, x, Count(num_rows));
}

float* RankLink::OwnLogits(int num_rows) const {
  return logits_.as<float>() + static_cast<std::size_t>(rank_) * num_rows * logits_stride_;
}

absl::Status RankLink::GatherLogits(int num_rows, float* logits, cudaStream_t stream) {
  const std::size_t count = static_cast<std::size_t>(num_rows) * logits_stride_;
  BATON_RETURN_IF_ERROR(
      communicator_->AllGather(OwnLogits(num_rows), count * sizeof(float), logits_.as<float>()));
  if (!first()) return absl::OkStatus();
  for (int rank = 0; rank < world_size_; ++rank) {
    const IndexRange range = vocab_[rank];
    BATON_CUDA_RETURN_IF_ERROR(cudaMemcpy2DAsync(
        logits + range.begin, vocab_size_ * sizeof(float), logits_.as<float>() + rank * count,
        logits_stride_ * sizeof(float), range.size() * sizeof(float), num_rows,
        cudaMemcpyDeviceToDevice, stream));
  }
  return absl::OkStatus();
}

absl::Status RankLink::status() const {
  return communicator_ == nullptr ? absl::OkStatus() : communicator_->status();
}

}  // namespace baton::engine::cuda
