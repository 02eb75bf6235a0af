#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/support/checkpoint_inputs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  baton::testing::UseConfigBytes(std::as_bytes(std::span(data, size)));
  return 0;
}
