#include "engine/ops/cpu/expert_routing.h"

#include <algorithm>
#include <cstddef>

#include "engine/ops/cpu/kernels.h"

namespace baton::engine::cpu {

void ChooseExperts(const LayerPlan& plan, float* logits, ExpertChoice* choices) {
  const int count = plan.experts_per_token;
  // The best so far stand first, best first; a newcomer passes those it is larger than. Until the
  // choice is made, weights are logits.
  for (int expert = 0; expert < plan.num_experts; ++expert) {
    int place = std::min(expert, count);
    while (place > 0 && logits[expert] > choices[place - 1].weight) {
      if (place < count) choices[place] = choices[place - 1];
      --place;
    }
    if (place < count) choices[place] = {expert, logits[expert]};
  }
  std::sort(choices, choices + count,
            [](const ExpertChoice& a, const ExpertChoice& b) { return a.expert < b.expert; });
  SoftmaxRow(plan.num_experts, logits);
  for (int i = 0; i < count; ++i) choices[i].weight = logits[choices[i].expert];
  if (!plan.normalize_expert_weights) return;
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum += choices[i].weight;
  for (int i = 0; i < count; ++i) choices[i].weight /= sum;
}

void ExpertGroups::Assign(std::span<const ExpertChoice> choices, int experts_per_token,
                          int num_experts) {
  const auto num_slots = static_cast<std::int32_t>(choices.size());
  next_slot_.assign(num_experts, 0);
  for (const ExpertChoice& choice : choices) ++next_slot_[choice.expert];
  groups_.clear();
  std::int32_t first = 0;
  for (std::int32_t expert = 0; expert < num_experts; ++expert) {
    const std::int32_t count = next_slot_[expert];
    if (count > 0) groups_.push_back({expert, first, count});
    next_slot_[expert] = first;
    first += count;
  }
  rows_.resize(num_slots);
  slots_.resize(num_slots);
  for (std::int32_t i = 0; i < num_slots; ++i) {
    const std::int32_t slot = next_slot_[choices[i].expert]++;
    slots_[i] = slot;
    rows_[slot] = i / experts_per_token;
  }
}

}  // namespace baton::engine::cpu
