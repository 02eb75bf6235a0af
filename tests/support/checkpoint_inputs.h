#pragma once
#include <cstddef>
#include <span>

namespace baton::testing {

// Each parses untrusted bytes and, when they pass, uses what came out as the engine would: every
// tensor is dequantized and hashed. Shared by the fuzzers and by the tests that replay their
// findings. True when the bytes were accepted.
bool UseGgufBytes(std::span<const std::byte> bytes);
bool UseSafetensorsBytes(std::span<const std::byte> bytes);
bool UseConfigBytes(std::span<const std::byte> bytes);  // config, generation and tokenizer config

}  // namespace baton::testing
