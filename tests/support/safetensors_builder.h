#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace baton::testing {

// Writes safetensors files, valid ones and, through the overriding fields, broken ones.
class SafetensorsBuilder {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> data;
    std::int64_t begin = -1;  // -1: where the data is written
    std::int64_t end = -1;
  };

  std::vector<Tensor> tensors;
  std::string header;               // empty: made from the tensors
  std::int64_t header_length = -1;  // -1: the header's

  Tensor& FindTensor(std::string_view name);
  void RemoveTensor(std::string_view name);
  std::string Header() const;  // JSON, padded with spaces to a multiple of 8
  std::vector<std::byte> Build() const;
};

// The weights of a llama with two layers, hidden size 32, two heads, one KV head, FFN 64 and a
// vocabulary of 8, in BF16, tied head: fits SmallLlamaConfig.
SafetensorsBuilder SmallLlamaSafetensors();

// A config.json as a map of JSON values by key, so that tests can change one of them.
using JsonFields = std::map<std::string, std::string>;
JsonFields SmallLlamaConfig();
std::string JsonText(const JsonFields& fields);

}  // namespace baton::testing
