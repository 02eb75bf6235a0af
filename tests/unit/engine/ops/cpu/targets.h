#pragma once
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace baton::engine::cpu {

// The instruction sets that this processor has and the kernels are compiled for.
inline std::vector<std::int64_t> KernelTargets() {
  std::vector<std::int64_t> targets;
  for (const std::int64_t target : {HWY_AVX3_DL, HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SCALAR}) {
    if ((hwy::SupportedTargets() & target) != 0 || target == HWY_SCALAR) targets.push_back(target);
  }
  return targets;
}

// Makes every kernel run on one instruction set while it lives.
class ScopedTarget {
 public:
  explicit ScopedTarget(std::int64_t target) : trace_(__FILE__, __LINE__, hwy::TargetName(target)) {
    hwy::GetChosenTarget().Update(target);
  }
  ~ScopedTarget() { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }
  ScopedTarget(const ScopedTarget&) = delete;
  ScopedTarget& operator=(const ScopedTarget&) = delete;

 private:
  ::testing::ScopedTrace trace_;
};

}  // namespace baton::engine::cpu
