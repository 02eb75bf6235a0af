#pragma once
#include <nccl.h>

#include <cstddef>
#include <vector>

namespace cuda_emulation::nccl {

// 0: no type of NCCL's.
std::size_t SizeOf(ncclDataType_t type);
bool CanReduce(ncclDataType_t type, ncclRedOp_t operation);

// out[i] = in[0][i] op in[1][i] op ..., in rank order, so that every rank gets the same bits.
// 16-bit floats are summed in float and rounded once. `out` may be one of `in`.
void Reduce(ncclDataType_t type, ncclRedOp_t operation, const std::vector<const char*>& in,
            std::size_t count, void* out);

}  // namespace cuda_emulation::nccl
