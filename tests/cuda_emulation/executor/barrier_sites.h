#pragma once
#include "cuda_emulation/site.h"

namespace cuda_emulation {

// Notes that a barrier or a wait was come to. True: SkipBarrier says to leave it out.
bool MeetAndMaySkip(const Site& site);

}  // namespace cuda_emulation
