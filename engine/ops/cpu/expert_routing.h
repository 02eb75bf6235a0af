#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/model_plan.h"

namespace baton::engine::cpu {

// One expert of one row.
struct ExpertChoice {
  std::int32_t expert = 0;
  float weight = 0.0f;  // of its result in the sum
};

// Turns a row of router logits, [num_experts], into probabilities and chooses from them as
// LayerPlan says: choices[0 .. experts_per_token), in the order of the experts' index. Logits that
// are NaN still give distinct experts.
void ChooseExperts(const LayerPlan& plan, float* logits, ExpertChoice* choices);

// The rows of a batch grouped by expert. A slot is one (row, expert) pair; slots of one expert lie
// side by side, in the order of their rows. Keeps its memory. Thread-compatible.
class ExpertGroups {
 public:
  struct Group {
    std::int32_t expert = 0;
    std::int32_t first_slot = 0;
    std::int32_t num_slots = 0;
  };

  // choices: [num_rows, experts_per_token], of experts in [0, num_experts).
  void Assign(std::span<const ExpertChoice> choices, int experts_per_token, int num_experts);

  // The experts that any row chose, in the order of their index.
  std::span<const Group> groups() const { return groups_; }
  // The row of each slot.
  std::span<const std::int32_t> rows() const { return rows_; }
  // The slot of each choice, in the order of the choices.
  std::span<const std::int32_t> slots() const { return slots_; }

 private:
  std::vector<Group> groups_;
  std::vector<std::int32_t> rows_, slots_, next_slot_;
};

}  // namespace baton::engine::cpu
