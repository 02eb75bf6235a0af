#pragma once
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/ops/ops.h"
#include "engine/sampling/sampler.h"

namespace baton::engine {

// Sampling for backends that compute logits in the host's memory: Ops::Logits of a few rows at a
// time, then the Sampler. Keeps its memory. Not thread-safe.
class HostSampling {
 public:
  // Chooses the token after each of `samples` out of `ops`'s logits.   x: [*, hidden]
  // Without `chooses` it only has them computed: a rank that another one samples for.
  absl::Status Sample(Ops& ops, const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                      std::span<const SampledRow> samples, bool chooses = true);
  // Those of the last Sample, in the order of its rows.
  std::vector<SampledToken>& tokens() { return tokens_; }

 private:
  Sampler sampler_;
  std::vector<std::int32_t> rows_;
  std::vector<float> logits_;
  std::vector<SampledToken> tokens_;
};

// Rows of logits to compute at once: enough to read the head's weights seldom, few enough to bound
// the memory (8 MiB) of many rows. At least 1.
int LogitRowsAtOnce(int vocab_size);

}  // namespace baton::engine
