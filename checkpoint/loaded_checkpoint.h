#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/call_once.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/int4_repacking.h"
#include "checkpoint/mapped_file.h"

namespace baton::checkpoint {

// What a reader has found, checked and named.
struct CheckpointParts {
  ModelMetadata metadata;
  TextAssets text_assets;
  std::map<std::string, Tensor, std::less<>> tensors;
  // Kept while tensors point into them.
  std::vector<std::unique_ptr<MappedFile>> files;
  RepackedWeights repacked;
};

// The one implementation of Checkpoint: readers of all formats end here. Thread-safe; the
// fingerprint is computed when first asked for.
class LoadedCheckpoint final : public Checkpoint {
 public:
  explicit LoadedCheckpoint(CheckpointParts parts);

  const ModelMetadata& metadata() const override { return parts_.metadata; }
  const TextAssets& text_assets() const override { return parts_.text_assets; }
  const Tensor* Find(std::string_view canonical_name) const override;
  const std::map<std::string, Tensor, std::less<>>& tensors() const override {
    return parts_.tensors;
  }
  const std::string& fingerprint() const override;

 private:
  const CheckpointParts parts_;
  mutable absl::once_flag fingerprint_once_;
  mutable std::string fingerprint_;  // written once, under fingerprint_once_
};

}  // namespace baton::checkpoint
