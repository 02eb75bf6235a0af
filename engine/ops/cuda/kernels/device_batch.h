#pragma once

// What the kernels of a step know of its batch, and how they see a layer's KV cache. Plain views of
// device memory; the owner is the backend's step buffers.
namespace baton::engine::cuda {

// The rows of one sequence in a ragged batch: rows [first_row, first_row + num_rows) are its tokens
// at positions [start_position, start_position + num_rows).
struct SequenceRows {
  int first_row;
  int num_rows;
  int start_position;
};

// The rows computed together in a step; every pointer is device memory whose address never changes,
// so that a captured graph can be replayed with other contents. A step may be filled up with rows
// that belong to no sequence (row_sequence -1): kernels write nothing to the KV cache for them, and
// whatever they leave in such rows of activations is never read. Likewise a step may be filled up
// with sequences of num_rows 0. Rows of one sequence are neighbours.
struct DeviceBatch {
  const int* tokens;              // [num_rows]; 0 in filling rows
  const int* positions;           // [num_rows]; 0 in filling rows
  const int* row_sequence;        // [num_rows]; -1 in filling rows
  const SequenceRows* sequences;  // [num_sequences]
  // [num_sequences, max_blocks]; -1: a hole, which no row sees. Places beyond a sequence's last
  // position hold anything.
  const int* block_tables;
  int max_blocks;  // the stride of block_tables
  int num_rows;
  int num_sequences;
};

// One layer of the KV pool: block b begins at data + b * block_stride(), K then V, each
// [num_kv_heads][block_size][head_dim]. Row r of a batch has the slot
//   block   block_tables[row_sequence[r] * max_blocks + positions[r] / block_size]
//   offset  positions[r] % block_size
template <class T>
struct KvView {
  T* data;
  int num_kv_heads;
  int head_dim;
  int block_size;
  // Elements; constexpr, so that kernels may call it.
  constexpr long long block_stride() const { return 2ll * num_kv_heads * block_size * head_dim; }
};

}  // namespace baton::engine::cuda
