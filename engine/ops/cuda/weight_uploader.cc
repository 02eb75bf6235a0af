#include "engine/ops/cuda/weight_uploader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "gpu/status.h"

namespace baton::engine::cuda {
namespace {

// A piece is copied in a millisecond; a device that needs this long is stuck.
constexpr absl::Duration kCopyDeadline = absl::Seconds(60);

}  // namespace

absl::StatusOr<std::unique_ptr<WeightUploader>> WeightUploader::Create(ElementType type,
                                                                       std::size_t piece_bytes) {
  std::unique_ptr<WeightUploader> uploader(new WeightUploader(type));
  BATON_ASSIGN_OR_RETURN(uploader->stream_, gpu::Stream::Create());
  for (Piece& piece : uploader->pieces_) {
    BATON_ASSIGN_OR_RETURN(piece.memory, gpu::PinnedBuffer::Create(piece_bytes));
    BATON_ASSIGN_OR_RETURN(piece.copied, gpu::Event::Create());
  }
  return uploader;
}

WeightUploader::~WeightUploader() {
  // After an error a copy out of the pieces may still be under way.
  for (Piece& piece : pieces_) Await(piece).IgnoreError();
}

absl::Status WeightUploader::Upload(std::byte* to, int count, std::size_t item_bytes,
                                    const Fill& fill) {
  const std::size_t piece_bytes = pieces_[0].memory.bytes();
  if (item_bytes == 0 || item_bytes > piece_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "row too long to upload: %d bytes, must be 1..%d", item_bytes, piece_bytes));
  }
  const int per_piece =
      static_cast<int>(std::min<std::size_t>(piece_bytes / item_bytes, std::max(count, 1)));
  for (int first = 0; first < count; first += per_piece) {
    const int number = std::min(per_piece, count - first);
    Piece& piece = pieces_[next_];
    next_ = 1 - next_;
    BATON_RETURN_IF_ERROR(Await(piece));
    fill(first, number, piece.memory.data());
    BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(to + item_bytes * first, piece.memory.data(),
                                               item_bytes * number, cudaMemcpyHostToDevice,
                                               stream_.get()));
    piece.in_use = true;
    if (absl::Status recorded = piece.copied.Record(stream_.get()); !recorded.ok()) {
      cudaStreamSynchronize(stream_.get());  // nothing else tells when the copy has ended
      return recorded;
    }
  }
  return absl::OkStatus();
}

absl::Status WeightUploader::Copy(std::byte* to, std::span<const std::byte> values) {
  return Upload(to, static_cast<int>(values.size()), 1, [&](int first, int number, std::byte* out) {
    std::memcpy(out, values.data() + first, number);
  });
}

absl::Status WeightUploader::Finish() {
  for (Piece& piece : pieces_) BATON_RETURN_IF_ERROR(Await(piece));
  return absl::OkStatus();
}

absl::Status WeightUploader::Await(Piece& piece) {
  if (!piece.in_use) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(piece.copied.Await(absl::Now() + kCopyDeadline));
  piece.in_use = false;
  return absl::OkStatus();
}

}  // namespace baton::engine::cuda
