#pragma once
#include <span>
#include <vector>

namespace baton::engine::reference {

// An expert that a row goes to, and the factor of what it gives.
struct ExpertShare {
  int expert;
  float weight;
};

// The `count` experts of the largest probabilities, in the order of their index; of equals, those
// of lower index. Probabilities are the softmax over all of `router_logits`; the weights are these,
// divided by their sum over the chosen ones if `normalize`. Computed in double.
//   router_logits: [num_experts]; 1 <= count <= num_experts
// Source: Shazeer et al. 2017 (arXiv:1701.06538); Mixtral (arXiv:2401.04088), section 2.1.
std::vector<ExpertShare> ChooseExperts(std::span<const float> router_logits, int count,
                                       bool normalize);

}  // namespace baton::engine::reference
