#include "bench/gpu/device_batch_buffer.h"

#include <cuda_runtime_api.h>

#include <numeric>
#include <vector>

#include "common/status.h"
#include "gpu/status.h"
#include "gpu/stream.h"

namespace baton::bench {

using engine::cuda::SequenceRows;

absl::StatusOr<DeviceBatchBuffer> DeviceBatchBuffer::Create(int num_sequences, int rows, int start,
                                                            int block_size) {
  const int num_rows = num_sequences * rows;
  const int max_blocks = (start + rows + block_size - 1) / block_size;
  // One array of ints: tokens, positions, sequence of each row, sequences, block tables.
  std::vector<int> values(num_rows, 1);
  for (int row = 0; row < num_rows; ++row) values.push_back(start + row % rows);
  for (int row = 0; row < num_rows; ++row) values.push_back(row / rows);
  static_assert(sizeof(SequenceRows) == 3 * sizeof(int));
  for (int i = 0; i < num_sequences; ++i) values.insert(values.end(), {i * rows, rows, start});
  const std::size_t tables = values.size();
  values.resize(tables + static_cast<std::size_t>(num_sequences) * max_blocks);
  std::iota(values.begin() + static_cast<std::ptrdiff_t>(tables), values.end(), 0);

  DeviceBatchBuffer batch;
  const std::size_t bytes = values.size() * sizeof(int);
  BATON_ASSIGN_OR_RETURN(batch.buffer_, gpu::DeviceBuffer::Create(bytes));
  BATON_ASSIGN_OR_RETURN(const auto stream, gpu::Stream::Create());
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(batch.buffer_.data(), values.data(), bytes,
                                             cudaMemcpyHostToDevice, stream.get()));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream.get()));
  const int* at = batch.buffer_.as<int>();
  batch.view_ = {.tokens = at,
                 .positions = at + num_rows,
                 .row_sequence = at + 2 * num_rows,
                 .sequences = reinterpret_cast<const SequenceRows*>(at + 3 * num_rows),
                 .block_tables = at + tables,
                 .max_blocks = max_blocks,
                 .num_rows = num_rows,
                 .num_sequences = num_sequences};
  return batch;
}

}  // namespace baton::bench
