#pragma once
// Shuffles, votes and reductions over a warp. They order no memory accesses, as in CUDA.
#include <bit>
#include <cstdint>
#include <cstring>

#include "cuda_emulation/kernel_api.h"

#if defined(__SANITIZE_THREAD__)
// Lanes exchange registers through each other's stacks; that is no race of the kernel.
#define CUDA_EMULATION_NO_TSAN __attribute__((no_sanitize("thread"), noinline))
#else
#define CUDA_EMULATION_NO_TSAN
#endif

namespace cuda_emulation {

template <class T>
struct ShuffleArguments {
  T in, out;
  int source;  // lane
};

template <class T>
CUDA_EMULATION_NO_TSAN void RunShuffle(void* const* arguments, std::uint32_t mask) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    auto* self = static_cast<ShuffleArguments<T>*>(arguments[lane]);
    if ((mask >> self->source & 1u) != 0) {
      self->out = static_cast<ShuffleArguments<T>*>(arguments[self->source])->in;
    } else {
      // Undefined on the device: hand back a pattern that shows.
      std::memset(static_cast<void*>(&self->out), 0xFF, sizeof(T));
    }
  }
}

template <class T>
T Shuffle(std::uint32_t mask, T value, int source, const Site& site) {
  ShuffleArguments<T> arguments{value, value, source};
  WarpCollective(mask, &arguments, &RunShuffle<T>, site);
  return arguments.out;
}

struct VoteArguments {
  bool vote;
  std::uint32_t ballot;
};
CUDA_EMULATION_NO_TSAN inline void RunVote(void* const* arguments, std::uint32_t mask) {
  std::uint32_t ballot = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    if (static_cast<VoteArguments*>(arguments[lane])->vote) ballot |= 1u << lane;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0) static_cast<VoteArguments*>(arguments[lane])->ballot = ballot;
  }
}
inline std::uint32_t Ballot(std::uint32_t mask, bool vote, const Site& site) {
  VoteArguments arguments{vote, 0};
  WarpCollective(mask, &arguments, &RunVote, site);
  return arguments.ballot;
}

template <class T>
struct GatherArguments {
  T value;
  T all[32];
};
template <class T>
CUDA_EMULATION_NO_TSAN void RunGather(void* const* arguments, std::uint32_t mask) {
  for (int to = 0; to < 32; ++to) {
    if ((mask >> to & 1u) == 0) continue;
    for (int from = 0; from < 32; ++from) {
      if ((mask >> from & 1u) == 0) continue;
      static_cast<GatherArguments<T>*>(arguments[to])->all[from] =
          static_cast<GatherArguments<T>*>(arguments[from])->value;
    }
  }
}
// Folds the values of the lanes of `mask`, in the order of lanes.
template <class T, class Fold>
T Reduce(std::uint32_t mask, T value, const Fold& fold, const Site& site) {
  GatherArguments<T> arguments{value, {}};
  WarpCollective(mask, &arguments, &RunGather<T>, site);
  T result = arguments.all[std::countr_zero(mask)];
  for (int lane = std::countr_zero(mask) + 1; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0) result = fold(result, arguments.all[lane]);
  }
  return result;
}

}  // namespace cuda_emulation

#define CUDA_EMULATION_SITE const cuda_emulation::Site& site = cuda_emulation::Site::Here()

// `width` is a power of two up to 32: each group of so many lanes shuffles for itself.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, CUDA_EMULATION_SITE) {
  const int lane = static_cast<int>(cuda_emulation::LaneId());
  return cuda_emulation::Shuffle(mask, value, (lane & ~(width - 1)) + (source & (width - 1)), site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, CUDA_EMULATION_SITE) {
  const int lane = static_cast<int>(cuda_emulation::LaneId());
  const int source = lane - static_cast<int>(distance);
  return cuda_emulation::Shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, CUDA_EMULATION_SITE) {
  const int lane = static_cast<int>(cuda_emulation::LaneId());
  const int source = lane + static_cast<int>(distance);
  return cuda_emulation::Shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, CUDA_EMULATION_SITE) {
  const int lane = static_cast<int>(cuda_emulation::LaneId());
  const int source = lane ^ lanes;
  return cuda_emulation::Shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, site);
}

inline unsigned __ballot_sync(unsigned mask, int vote, CUDA_EMULATION_SITE) {
  return cuda_emulation::Ballot(mask, vote != 0, site);
}
inline int __any_sync(unsigned mask, int vote, CUDA_EMULATION_SITE) {
  return cuda_emulation::Ballot(mask, vote != 0, site) != 0;
}
inline int __all_sync(unsigned mask, int vote, CUDA_EMULATION_SITE) {
  return cuda_emulation::Ballot(mask, vote != 0, site) == mask;
}
// The lanes of `mask` whose value equals this lane's.
template <class T>
unsigned __match_any_sync(unsigned mask, T value, CUDA_EMULATION_SITE) {
  cuda_emulation::GatherArguments<T> arguments{value, {}};
  cuda_emulation::WarpCollective(mask, &arguments, &cuda_emulation::RunGather<T>, site);
  unsigned equal = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0 && arguments.all[lane] == value) equal |= 1u << lane;
  }
  return equal;
}

// int and unsigned only, as on the device (sm_80).
template <class T>
T __reduce_add_sync(unsigned mask, T value, CUDA_EMULATION_SITE) {
  return cuda_emulation::Reduce(
      mask, value,
      [](T a, T b) { return static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); },
      site);
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, CUDA_EMULATION_SITE) {
  return cuda_emulation::Reduce(
      mask, value, [](T a, T b) { return b < a ? b : a; }, site);
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, CUDA_EMULATION_SITE) {
  return cuda_emulation::Reduce(
      mask, value, [](T a, T b) { return a < b ? b : a; }, site);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, CUDA_EMULATION_SITE) {
  return cuda_emulation::Reduce(
      mask, value, [](unsigned a, unsigned b) { return a | b; }, site);
}
