#pragma once
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::text {

// A pattern in the syntax of Oniguruma, which the files' expressions are written for, rewritten
// into one that PCRE2 reads with the same meaning: classes like \w and \s, classes within classes
// and their intersections, \h, (?m), {,n}. Matching is by Unicode as always in tokenizers.
//   kFailedPrecondition  a construct that PCRE2 lacks or reads otherwise; says which and where
absl::StatusOr<std::string> OnigurumaToPcre(std::string_view pattern);

}  // namespace baton::text
