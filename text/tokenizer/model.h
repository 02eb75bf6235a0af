#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace baton::text {

// Turns one word into token ids. Immutable and thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `word`, which is not empty.
  virtual void Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
};

}  // namespace baton::text
