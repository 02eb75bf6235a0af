#pragma once

namespace baton {

// First position that the row at `position` sees through a window of `window` tokens, its own
// included; a window of 0 has no edge.
constexpr int FirstVisible(int window, int position) {
  return window == 0 || position < window ? 0 : position - window + 1;
}

}  // namespace baton
