#include "text/jinja/builtins.h"

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/python_format.h"

namespace baton::text::jinja {
namespace {

const Builtin* Find(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace

BoundArguments Bind(const Builtin& builtin, const CallArguments& arguments) {
  const std::string name(builtin.name);
  const std::size_t num_parameters = builtin.parameters.size();
  BoundArguments bound;
  bound.values_.resize(num_parameters);
  bound.given_.resize(num_parameters);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < num_parameters) {
      bound.values_[i] = arguments.positional[i];
      bound.given_[i] = true;
    } else if (builtin.variadic) {
      bound.rest_.positional.push_back(arguments.positional[i]);
    } else {
      FailRuntime(name + "() takes at most " + std::to_string(num_parameters) + " arguments, got " +
                  std::to_string(arguments.positional.size()));
    }
  }
  for (const auto& [key, value] : arguments.named) {
    const auto it = std::find(builtin.parameters.begin(), builtin.parameters.end(), key);
    if (it == builtin.parameters.end()) {
      if (!builtin.variadic)
        FailRuntime(name + "() got an unexpected keyword argument '" + key + "'");
      bound.rest_.named.emplace_back(key, value);
      continue;
    }
    const auto index = static_cast<std::size_t>(it - builtin.parameters.begin());
    if (bound.given_[index])
      FailRuntime(name + "() got multiple values for argument '" + key + "'");
    bound.values_[index] = value;
    bound.given_[index] = true;
  }
  for (std::size_t i = 0; i < builtin.num_required; ++i) {
    if (!bound.given_[i]) {
      FailRuntime(name + "() misses the argument '" + std::string(builtin.parameters[i]) + "'");
    }
  }
  return bound;
}

const Builtin* FindFilter(std::string_view name) {
  for (const auto table : {StringFilters(), SequenceFilters(), ValueFilters()}) {
    if (const Builtin* found = Find(table, name)) return found;
  }
  return nullptr;
}

const Builtin* FindTest(std::string_view name) { return Find(Tests(), name); }

std::int64_t IntArgument(const Value& value, std::string_view what) {
  if (value.is_int() || value.is_bool()) return value.as_int();
  FailRuntime(std::string(what) + " must be an integer, not " + std::string(TypeName(value)));
}

const std::string& StringArgument(const Value& value, std::string_view what) {
  if (value.is_string()) return value.str();
  FailRuntime(std::string(what) + " must be str, not " + std::string(TypeName(value)));
}

}  // namespace baton::text::jinja
