#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace baton::text::jinja {

// A compiled template: the border between the interpreter, which throws, and the rest of the house.
// Immutable and thread-safe.
class Program {
 public:
  //   kInvalidArgument     a syntax error: "line L, column C: ..."
  //   kFailedPrecondition  an unknown tag, filter, test or function: likewise
  static absl::StatusOr<std::unique_ptr<const Program>> Compile(std::string_view source);

  // Runs with `variables` (names the template does not use are ignored).
  //   kInvalidArgument    raise_exception (its message alone) or an error of the template's run
  //   kResourceExhausted  a limit was hit
  absl::StatusOr<std::string> Run(const std::map<std::string, Value>& variables, absl::Time now,
                                  absl::TimeZone time_zone, const Limits& limits = {}) const;

 private:
  explicit Program(Ast ast) : ast_(std::move(ast)) {}
  const Ast ast_;
};

}  // namespace baton::text::jinja
