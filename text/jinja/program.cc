#include "text/jinja/program.h"

#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

absl::Status CompileStatus(const Error& error) {
  const std::string message = absl::StrFormat("line %d, column %d: %s", error.position().line,
                                              error.position().column, error.message());
  return error.kind() == ErrorKind::kUnsupported ? absl::FailedPreconditionError(message)
                                                 : absl::InvalidArgumentError(message);
}

absl::Status RunStatus(const Error& error) {
  if (error.kind() == ErrorKind::kRaised) return absl::InvalidArgumentError(error.message());
  const std::string message =
      absl::StrCat("chat template, line ", error.position().line, ": ", error.message());
  return error.kind() == ErrorKind::kLimit ? absl::ResourceExhaustedError(message)
                                           : absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Program>> Program::Compile(std::string_view source) {
  if (!IsValidUtf8(source)) return absl::InvalidArgumentError("chat template: not UTF-8");
  try {
    return std::unique_ptr<const Program>(new Program(Parse(source)));
  } catch (const Error& error) {
    return CompileStatus(error);
  }
}

absl::StatusOr<std::string> Program::Run(const std::map<std::string, Value>& variables,
                                         absl::Time now, absl::TimeZone time_zone,
                                         const Limits& limits) const {
  std::vector<Value> by_symbol;
  by_symbol.reserve(ast_.names.size());
  for (const std::string& name : ast_.names) {
    const auto it = variables.find(name);
    by_symbol.push_back(it == variables.end() ? Value::Undefined() : it->second);
  }
  try {
    return Interpreter(ast_, std::move(by_symbol), limits, now, time_zone).Run();
  } catch (const Error& error) {
    return RunStatus(error);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("chat template: out of memory");
  }
}

}  // namespace baton::text::jinja
