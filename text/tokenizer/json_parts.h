#pragma once
#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::text {

// Reading the parts of a tokenizer.json. A part is an object whose "type" names it.
using JsonPart = simdjson::dom::element;

inline absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Damaged(std::string_view what);  // kInvalidArgument
// kFailedPrecondition: "unsupported KIND: NAME", then what of that kind is supported.
absl::Status Unsupported(std::string_view kind, std::string_view name,
                         std::string_view supported = {});

// The member `key`, or nothing when it is absent or null (or `parent` is no object).
std::optional<JsonPart> Member(JsonPart parent, std::string_view key);
std::string TypeOf(JsonPart part);  // "" when it has none

// The member or, when it is absent or null, `fallback`.
//   kInvalidArgument  it has another type
absl::StatusOr<bool> BoolMember(JsonPart parent, std::string_view key, bool fallback);
absl::StatusOr<std::string> StringMember(JsonPart parent, std::string_view key,
                                         std::string fallback);
// The same for a member that must be there.
absl::StatusOr<std::string> StringMember(JsonPart parent, std::string_view key);
absl::StatusOr<std::int64_t> IntMember(JsonPart parent, std::string_view key);
// A string of exactly one character.
absl::StatusOr<std::string> CharacterMember(JsonPart parent, std::string_view key);

// The steps of a "Sequence" under `key`, those of sequences within included; of anything else the
// thing itself; of null none.
absl::StatusOr<std::vector<JsonPart>> StepsOf(JsonPart root, std::string_view part,
                                              std::string_view key);

// An id of a token.
bool ReadId(JsonPart value, std::int32_t& id);

}  // namespace baton::text
