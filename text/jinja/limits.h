#pragma once
#include <cstddef>
#include <cstdint>

namespace baton::text::jinja {

// What one run of a template may use. Far above what chats need; a template (it comes with the
// model) or a hostile request must not be able to hold a server thread or fill its memory.
struct Limits {
  std::int64_t max_steps = 10'000'000;  // nodes evaluated, items walked, 64-byte units copied
  std::size_t max_memory_bytes = std::size_t{256} << 20;  // values alive at one time
  std::size_t max_output_bytes = std::size_t{32} << 20;   // text being written, captures included
  int max_depth = 1200;  // nested evaluations: about 200 nested macro calls
};

// What a template's source may be.
inline constexpr std::size_t kMaxSourceBytes = std::size_t{4} << 20;
inline constexpr int kMaxExpressionDepth = 300;
inline constexpr int kMaxStatementDepth = 100;

// Jinja's own bound for range() in its sandbox.
inline constexpr std::int64_t kMaxRange = 100'000;

}  // namespace baton::text::jinja
