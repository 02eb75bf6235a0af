// Builds a tokenizer from any bytes as tokenizer.json; what can be built must encode and decode.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/text_inputs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  baton::text::RunTokenizerJsonInput(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
