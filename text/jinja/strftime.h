#pragma once
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace baton::text::jinja {

// Python's datetime.strftime for the C locale. Throws Error(kLimit) for an absurdly long format.
std::string Strftime(std::string_view format, absl::Time time, const absl::TimeZone& time_zone);

}  // namespace baton::text::jinja
