#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// Writing JSON by appending, for the path that every streamed token takes.
namespace baton::router {

// Appends `text` as a JSON string with its quotes. What is not UTF-8 becomes U+FFFD.
void AppendJsonString(std::string_view text, std::string& out);

// Appends what stands between the quotes; `text` must be UTF-8.
void AppendJsonEscaped(std::string_view text, std::string& out);

// Shortest decimal that reads back as the same float. JSON has no infinities: what is not finite,
// and anything below -9999, becomes -9999.0, as OpenAI and vLLM do for log-probabilities.
void AppendLogprob(float value, std::string& out);

void AppendInt(std::int64_t value, std::string& out);
// "[1,2,3]"
void AppendIntArray(std::span<const std::int32_t> values, std::string& out);

}  // namespace baton::router
