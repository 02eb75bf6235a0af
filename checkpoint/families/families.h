#pragma once
#include "checkpoint/family.h"

namespace baton::checkpoint {

// One table each, in the file of the name.
extern const Family kGemma;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kLlama;
extern const Family kMistral;
extern const Family kMixtral;
extern const Family kPhi3;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kSmolLm3;

}  // namespace baton::checkpoint
