#pragma once
#include "checkpoint/family.h"

namespace baton::checkpoint {

// Llama 2 and 3, SmolLM2 and everything else that calls itself LlamaForCausalLM.
extern const Family kLlama;

}  // namespace baton::checkpoint
