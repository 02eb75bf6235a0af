#include "checkpoint/gguf_keys.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {

GgufKeys::GgufKeys(const GgufMetadata& metadata, std::string_view architecture)
    : metadata_(metadata), prefix_(absl::StrCat(std::string(architecture), ".")) {}

std::string GgufKeys::Full(std::string_view key) const {
  return absl::StrCat(prefix_, std::string(key));
}

bool GgufKeys::IsArray(std::string_view key) const {
  const auto found = metadata_.values().find(Full(key));
  return found != metadata_.values().end() && std::holds_alternative<GgufArray>(found->second);
}

absl::StatusOr<std::optional<std::int64_t>> GgufKeys::Integer(std::string_view key) const {
  const std::string full = Full(key);
  if (!IsArray(key)) return metadata_.Integer(full);
  BATON_ASSIGN_OR_RETURN(const auto list, metadata_.Integers(full));
  if (list->empty()) return std::optional<std::int64_t>();
  for (const std::int64_t value : *list) {
    if (value != list->front()) {
      return absl::FailedPreconditionError(
          absl::StrCat("unsupported: ", Quoted(full), " differs between layers"));
    }
  }
  return std::optional(list->front());
}

absl::StatusOr<std::optional<double>> GgufKeys::Number(std::string_view key) const {
  return metadata_.Number(Full(key));
}

absl::StatusOr<std::optional<bool>> GgufKeys::Bool(std::string_view key) const {
  return metadata_.Bool(Full(key));
}

absl::StatusOr<std::optional<std::string_view>> GgufKeys::String(std::string_view key) const {
  return metadata_.String(Full(key));
}

absl::StatusOr<std::optional<std::vector<bool>>> GgufKeys::Flags(std::string_view key) const {
  return metadata_.Flags(Full(key));
}

}  // namespace baton::checkpoint
