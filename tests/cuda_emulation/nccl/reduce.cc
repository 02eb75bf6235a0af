#include "cuda_emulation/nccl/reduce.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

namespace cuda_emulation::nccl {
namespace {

template <class A>
A Combine(ncclRedOp_t operation, A a, A b) {
  switch (operation) {
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    case ncclProd:
      return a * b;
    default:
      return a + b;
  }
}

template <class T, class A>
void ReduceAs(ncclRedOp_t operation, const std::vector<const char*>& in, std::size_t count,
              void* out) {
  for (std::size_t i = 0; i < count; ++i) {
    A sum = static_cast<A>(reinterpret_cast<const T*>(in[0])[i]);
    for (std::size_t rank = 1; rank < in.size(); ++rank) {
      sum = Combine(operation, sum, static_cast<A>(reinterpret_cast<const T*>(in[rank])[i]));
    }
    if (operation == ncclAvg) sum = sum / static_cast<A>(in.size());
    static_cast<T*>(out)[i] = static_cast<T>(sum);
  }
}

}  // namespace

std::size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

bool CanReduce(ncclDataType_t type, ncclRedOp_t operation) {
  return SizeOf(type) > 0 && type != ncclFloat8e4m3 && type != ncclFloat8e5m2 &&
         operation >= ncclSum && operation <= ncclAvg;
}

void Reduce(ncclDataType_t type, ncclRedOp_t operation, const std::vector<const char*>& in,
            std::size_t count, void* out) {
  switch (type) {
    case ncclInt8:
      return ReduceAs<std::int8_t, int>(operation, in, count, out);
    case ncclUint8:
      return ReduceAs<std::uint8_t, int>(operation, in, count, out);
    case ncclInt32:
      return ReduceAs<std::int32_t, std::int32_t>(operation, in, count, out);
    case ncclUint32:
      return ReduceAs<std::uint32_t, std::uint32_t>(operation, in, count, out);
    case ncclInt64:
      return ReduceAs<std::int64_t, std::int64_t>(operation, in, count, out);
    case ncclUint64:
      return ReduceAs<std::uint64_t, std::uint64_t>(operation, in, count, out);
    case ncclFloat16:
      return ReduceAs<__half, float>(operation, in, count, out);
    case ncclBfloat16:
      return ReduceAs<__nv_bfloat16, float>(operation, in, count, out);
    case ncclFloat32:
      return ReduceAs<float, float>(operation, in, count, out);
    default:
      return ReduceAs<double, double>(operation, in, count, out);
  }
}

}  // namespace cuda_emulation::nccl
