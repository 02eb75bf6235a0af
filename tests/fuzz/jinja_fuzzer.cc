// Compiles and runs any bytes as a chat template: neither may crash, hang or outgrow its limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/text_inputs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  baton::text::RunJinjaInput(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
