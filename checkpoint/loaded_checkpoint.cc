#include "checkpoint/loaded_checkpoint.h"

#include <utility>

#include "checkpoint/fingerprint.h"

namespace baton::checkpoint {

LoadedCheckpoint::LoadedCheckpoint(CheckpointParts parts) : parts_(std::move(parts)) {}

const Tensor* LoadedCheckpoint::Find(std::string_view canonical_name) const {
  const auto found = parts_.tensors.find(canonical_name);
  return found == parts_.tensors.end() ? nullptr : &found->second;
}

const std::string& LoadedCheckpoint::fingerprint() const {
  absl::call_once(fingerprint_once_,
                  [this] { fingerprint_ = Fingerprint(parts_.metadata, parts_.tensors); });
  return fingerprint_;
}

}  // namespace baton::checkpoint
