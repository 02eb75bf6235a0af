#include "engine/sampling/host_sampling.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/status.h"

namespace baton::engine {

int LogitRowsAtOnce(int vocab_size) {
  constexpr int kMaxLogits = 2 << 20;
  return std::max(1, kMaxLogits / vocab_size);
}

absl::Status HostSampling::Sample(Ops& ops, const ModelPlan& plan, const EdgeWeights& edges,
                                  Matrix x, std::span<const SampledRow> samples, bool chooses) {
  tokens_.clear();
  const auto vocab = static_cast<std::size_t>(plan.vocab_size);
  const auto at_once = static_cast<std::size_t>(LogitRowsAtOnce(plan.vocab_size));
  while (tokens_.size() < samples.size()) {
    const auto part =
        samples.subspan(tokens_.size(), std::min(at_once, samples.size() - tokens_.size()));
    rows_.clear();
    for (const SampledRow& sample : part) rows_.push_back(sample.row);
    if (logits_.size() < part.size() * vocab) logits_.resize(part.size() * vocab);
    BATON_RETURN_IF_ERROR(ops.Logits(plan, edges, x, rows_, logits_.data()));
    for (std::size_t i = 0; i < part.size(); ++i) {
      const std::span<float> row = std::span(logits_).subspan(i * vocab, vocab);
      tokens_.push_back(chooses
                            ? sampler_.Sample(*part[i].params, part[i].prompt, part[i].output, row)
                            : SampledToken());
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::engine
