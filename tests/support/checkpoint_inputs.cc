#include "tests/support/checkpoint_inputs.h"

#include <string_view>
#include <vector>

#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/huggingface_config.h"
#include "checkpoint/inspect.h"
#include "checkpoint/safetensors_file.h"
#include "common/check.h"

namespace baton::testing {
namespace {

using checkpoint::Tensor;

void DequantizeAll(const Tensor& tensor) {
  BATON_CHECK(tensor.data.size() == static_cast<std::size_t>(tensor.rows() * tensor.row_bytes()),
              "a tensor's data is as long as its shape and type demand");
  std::vector<float> row(static_cast<std::size_t>(tensor.columns()));
  for (std::int64_t r = 0; r < tensor.rows(); ++r) {
    checkpoint::DequantizeRow(tensor.dtype, tensor.data.data() + r * tensor.row_bytes(),
                              tensor.columns(), row.data());
  }
}

}  // namespace

bool UseGgufBytes(std::span<const std::byte> bytes) {
  const auto model = checkpoint::OpenGgufFromMemory(bytes, "input.gguf");
  if (!model.ok()) {
    BATON_CHECK(!model.status().message().empty(), "an error has a message");
    return false;
  }
  for (const auto& [name, tensor] : (*model)->tensors()) DequantizeAll(tensor);
  BATON_CHECK((*model)->fingerprint().size() == 64, "a fingerprint is 32 bytes in hex");
  BATON_CHECK(checkpoint::Inspect(**model).parameters > 0, "a model has parameters");
  return true;
}

bool UseSafetensorsBytes(std::span<const std::byte> bytes) {
  const auto tensors = checkpoint::ParseSafetensors(bytes);
  if (!tensors.ok()) return false;
  for (const auto& [name, stored] : *tensors) {
    if (!stored.dtype.has_value()) continue;
    DequantizeAll(
        {.name = name, .dtype = *stored.dtype, .shape = stored.shape, .data = stored.data});
  }
  return true;
}

bool UseConfigBytes(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto object = checkpoint::JsonObject::Parse(text);
  if (!object.ok()) return false;
  const auto config = checkpoint::ReadHuggingFaceConfig(*object);
  checkpoint::TextAssets assets;
  const bool generation = checkpoint::AddGenerationConfig(*object, 1000, assets).ok();
  const bool tokenizer = checkpoint::AddTokenizerConfig(*object, assets).ok();
  return config.ok() && generation && tokenizer;
}

}  // namespace baton::testing
