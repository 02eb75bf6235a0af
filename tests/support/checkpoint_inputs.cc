#include "tests/support/checkpoint_inputs.h"

#include <string_view>
#include <vector>

#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/huggingface_config.h"
#include "checkpoint/inspect.h"
#include "checkpoint/int4_repacking.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/safetensors_file.h"
#include "common/check.h"
#include "engine/model/model_plan.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

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

void UseStored(const checkpoint::StoredTensors& tensors) {
  for (const auto& [name, stored] : tensors) {
    if (!stored.dtype.has_value()) continue;
    DequantizeAll(
        {.name = name, .dtype = *stored.dtype, .shape = stored.shape, .data = stored.data});
    for (const std::int32_t column : stored.column_order) {
      BATON_CHECK(column >= 0 && column < stored.shape.back(), "an order is of the columns");
    }
  }
}

// A plan, if there is one, has a rope and layers to compute with.
void UseMetadata(const checkpoint::ModelMetadata& metadata) {
  const auto plan = engine::MakeModelPlan(metadata, 0);
  if (!plan.ok()) return;
  engine::RopeAngleBuffer angles;
  const std::vector<std::int32_t> positions = {0, plan->max_context - 1};
  angles.Compute(plan->ropes, positions, positions);
  BATON_CHECK(static_cast<int>(plan->layers.size()) == metadata.num_layers, "a plan per layer");
}

// What can be built of a model's text side must encode and decode.
void UseTextAssets(const checkpoint::TextAssets& assets) {
  const auto tokenizer = text::Tokenizer::Create(assets);
  if (!tokenizer.ok()) return;
  for (const char* sample :
       {"", "Hello, world 123", "  a\n\nb\t c  ", "\u4f60\u597d", "<s>x</s>"}) {
    const auto ids = (*tokenizer)->Encode(sample, {.add_special_tokens = true});
    for (const std::int32_t id : ids) {
      BATON_CHECK(id >= 0 && id < (*tokenizer)->vocab_size(), "an id outside the vocabulary");
    }
    BATON_CHECK(text::IsValidUtf8((*tokenizer)->Decode(ids, false)), "decoded text is not UTF-8");
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
  UseMetadata((*model)->metadata());
  UseTextAssets((*model)->text_assets());
  return true;
}

bool UseSafetensorsBytes(std::span<const std::byte> bytes) {
  const auto tensors = checkpoint::ParseSafetensors(bytes);
  if (!tensors.ok()) return false;
  UseStored(*tensors);
  // As a directory would whose config said that its maps are packed.
  using checkpoint::QuantizationConfig;
  for (const auto method : {QuantizationConfig::Method::kAwq, QuantizationConfig::Method::kGptq}) {
    checkpoint::StoredTensors stored = *tensors;
    checkpoint::RepackedWeights memory;
    const QuantizationConfig config{.method = method, .group_size = 32, .zero_offset = 1};
    if (checkpoint::RepackLinearMaps(config, stored, memory).ok()) UseStored(stored);
  }
  return true;
}

bool UseConfigBytes(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto object = checkpoint::JsonObject::Parse(text);
  if (!object.ok()) return false;
  const auto config = checkpoint::ReadHuggingFaceConfig(*object);
  const bool quantization = checkpoint::ReadQuantizationConfig(*object).ok();
  checkpoint::TextAssets assets;
  const bool generation = checkpoint::AddGenerationConfig(*object, 1000, assets).ok();
  const bool tokenizer = checkpoint::AddTokenizerConfig(*object, assets).ok();
  if (config.ok()) UseMetadata(config->metadata);
  return config.ok() && quantization && generation && tokenizer;
}

}  // namespace baton::testing
