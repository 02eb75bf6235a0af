#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace baton::testing {

// Writes GGUF files, valid ones and, through the fields that override what would follow from the
// contents, broken ones.
class GgufBuilder {
 public:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;  // outermost first
    std::uint32_t type = 0;           // ggml_type
    std::vector<std::byte> data;
    std::int64_t offset = -1;  // -1: the next free place
  };
  using Value =
      std::variant<std::uint32_t, std::int32_t, std::uint64_t, float, bool, std::string,
                   std::vector<std::string>, std::vector<std::int32_t>, std::vector<float>>;

  std::uint32_t magic = 0x46554747;
  std::uint32_t version = 3;
  std::int64_t num_tensors = -1;  // -1: as many as there are
  std::int64_t num_pairs = -1;
  std::vector<std::pair<std::string, Value>> metadata;
  std::vector<Tensor> tensors;

  // Sets a metadata value, replacing the key's former one.
  void Set(const std::string& key, Value value);
  void Remove(const std::string& key);
  Tensor& FindTensor(std::string_view name);
  void RemoveTensor(std::string_view name);

  std::vector<std::byte> Build() const;
};

// A llama with two layers, hidden size 32, two heads, one KV head, FFN 64 and a vocabulary of 8:
// Q8_0 matrices with one repeated byte pattern, F32 norms, tied head.
GgufBuilder SmallLlamaGguf();

}  // namespace baton::testing
