#include "text/jinja/strftime.h"

#include <cstdio>

#include "text/jinja/error.h"

namespace baton::text::jinja {
namespace {
constexpr std::size_t kMaxFormatBytes = 4096;
}  // namespace

std::string Strftime(std::string_view format, absl::Time time, const absl::TimeZone& time_zone) {
  if (format.size() > kMaxFormatBytes) throw Error(ErrorKind::kLimit, "strftime format too long");
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const bool has_flag = i + 2 < format.size() && (format[i + 1] == '-' || format[i + 1] == '_');
    const std::string directive(format.substr(i, has_flag ? 3 : 2));
    i += directive.size() - 1;
    if (directive == "%f") {  // microseconds, which absl spells otherwise
      const auto since_second = time - absl::FromUnixSeconds(absl::ToUnixSeconds(time));
      char digits[16];
      std::snprintf(digits, sizeof(digits), "%06d",
                    static_cast<int>(absl::ToInt64Microseconds(since_second)));
      out += digits;
    } else if (directive != "%z" && directive != "%Z") {
      out += absl::FormatTime(directive, time, time_zone);
    }  // a datetime without a zone prints %z and %Z as nothing
  }
  return out;
}

}  // namespace baton::text::jinja
