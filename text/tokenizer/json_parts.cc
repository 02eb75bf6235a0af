#include "text/tokenizer/json_parts.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr int kMaxSequenceDepth = 16;
constexpr std::size_t kMaxSteps = 64;

absl::Status AddSteps(JsonPart part, std::string_view key, int depth,
                      std::vector<JsonPart>& steps) {
  if (TypeOf(part) != "Sequence") {
    steps.push_back(part);
    return absl::OkStatus();
  }
  simdjson::dom::array inner;
  if (depth > kMaxSequenceDepth || part.at_key(key).get(inner)) {
    return Damaged(absl::StrCat("a Sequence without ", Absl(key)));
  }
  for (const JsonPart step : inner) BATON_RETURN_IF_ERROR(AddSteps(step, key, depth + 1, steps));
  return absl::OkStatus();
}

}  // namespace

absl::Status Damaged(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("damaged: ", Absl(what)));
}

absl::Status Unsupported(std::string_view kind, std::string_view name, std::string_view supported) {
  std::string message = absl::StrCat("unsupported ", Absl(kind), ": ", Absl(name));
  if (!supported.empty()) absl::StrAppend(&message, "; supported are ", Absl(supported));
  return absl::FailedPreconditionError(message);
}

std::optional<JsonPart> Member(JsonPart parent, std::string_view key) {
  JsonPart value;
  if (parent.at_key(key).get(value) || value.is_null()) return std::nullopt;
  return value;
}

std::string TypeOf(JsonPart part) {
  std::string_view type;
  const std::optional<JsonPart> value = Member(part, "type");
  if (!value || value->get(type)) return {};
  return std::string(type);
}

absl::StatusOr<bool> BoolMember(JsonPart parent, std::string_view key, bool fallback) {
  const std::optional<JsonPart> value = Member(parent, key);
  if (!value) return fallback;
  bool out = false;
  if (value->get(out)) return Damaged(absl::StrCat(Absl(key), " is not true or false"));
  return out;
}

absl::StatusOr<std::string> StringMember(JsonPart parent, std::string_view key,
                                         std::string fallback) {
  const std::optional<JsonPart> value = Member(parent, key);
  if (!value) return fallback;
  std::string_view out;
  if (value->get(out)) return Damaged(absl::StrCat(Absl(key), " is not a string"));
  return std::string(out);
}

absl::StatusOr<std::string> StringMember(JsonPart parent, std::string_view key) {
  if (!Member(parent, key)) {
    return Damaged(absl::StrCat(TypeOf(parent), " without ", Absl(key)));
  }
  return StringMember(parent, key, "");
}

absl::StatusOr<std::int64_t> IntMember(JsonPart parent, std::string_view key) {
  const std::optional<JsonPart> value = Member(parent, key);
  std::int64_t out = 0;
  if (!value || value->get(out)) {
    return Damaged(absl::StrCat(TypeOf(parent), ": ", Absl(key), " is not a number"));
  }
  return out;
}

absl::StatusOr<std::string> CharacterMember(JsonPart parent, std::string_view key) {
  BATON_ASSIGN_OR_RETURN(std::string text, StringMember(parent, key));
  if (CountCodePoints(text) != 1) {
    return Damaged(
        absl::StrCat(TypeOf(parent), ": ", Absl(key), " is not one character: \"", text, "\""));
  }
  return text;
}

absl::StatusOr<std::vector<JsonPart>> StepsOf(JsonPart root, std::string_view part,
                                              std::string_view key) {
  std::vector<JsonPart> steps;
  if (const std::optional<JsonPart> first = Member(root, part)) {
    BATON_RETURN_IF_ERROR(AddSteps(*first, key, 0, steps));
  }
  if (steps.size() > kMaxSteps) {
    return Unsupported(part, absl::StrCat("a Sequence of ", steps.size(), " steps"),
                       absl::StrCat("up to ", kMaxSteps));
  }
  return steps;
}

bool ReadId(JsonPart value, std::int32_t& id) {
  std::int64_t number = 0;
  if (value.get(number) || number < 0 || number > INT32_MAX) return false;
  id = static_cast<std::int32_t>(number);
  return true;
}

}  // namespace baton::text
