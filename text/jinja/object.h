#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace baton::text::jinja {

class Interpreter;

// The arguments of a call as they are written.
struct CallArguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A value that is not data: functions, methods, macros, loops, namespaces. Lives within one run.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::string Repr() const = 0;
  // The attribute, or nothing when there is none.
  virtual std::optional<Value> GetAttribute(Interpreter& interpreter, std::string_view name) = 0;
  virtual bool is_callable() const = 0;
  // Only called when is_callable().
  virtual Value Call(Interpreter& interpreter, const CallArguments& arguments) = 0;
};

}  // namespace baton::text::jinja
