#include "checkpoint/checkpoint.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/huggingface_checkpoint.h"
#include "common/status.h"

namespace baton::checkpoint {

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return Annotate(absl::NotFoundError("no such model: give a .gguf file or the directory of a "
                                        "Hugging Face model"),
                    path);
  }
  if (std::filesystem::is_directory(status)) return OpenHuggingFace(path);
  if (std::string_view(path).ends_with(".safetensors")) {
    return Annotate(absl::InvalidArgumentError(
                        "a safetensors file holds weights only; give the directory it lies in"),
                    path);
  }
  return OpenGguf(path);
}

}  // namespace baton::checkpoint
