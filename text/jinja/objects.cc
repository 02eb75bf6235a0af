#include "text/jinja/objects.h"

#include "text/jinja/error.h"

namespace baton::text::jinja {
namespace {

LoopObject& AsLoop(const Value& self) { return static_cast<LoopObject&>(self.object()); }
CyclerObject& AsCycler(const Value& self) { return static_cast<CyclerObject&>(self.object()); }

Value RunCycle(Interpreter&, const Value& self, const BoundArguments& arguments) {
  return AsLoop(self).Cycle(arguments.rest().positional);
}
Value RunChanged(Interpreter&, const Value& self, const BoundArguments& arguments) {
  return Value::Bool(AsLoop(self).Changed(arguments.rest().positional));
}
Value RunNext(Interpreter&, const Value& self, const BoundArguments&) {
  return AsCycler(self).Next();
}
Value RunReset(Interpreter&, const Value& self, const BoundArguments&) {
  AsCycler(self).Reset();
  return Value::None();
}

const Builtin kCycle = {"cycle", 0, {}, true, RunCycle};
const Builtin kChanged = {"changed", 0, {}, true, RunChanged};
const Builtin kNext = {"next", 0, {}, false, RunNext};
const Builtin kReset = {"reset", 0, {}, false, RunReset};

Value BindMethod(const Builtin& builtin, std::shared_ptr<Object> object) {
  return Value::FromObject(
      std::make_shared<FunctionObject>(builtin, Value::FromObject(std::move(object))));
}

}  // namespace

std::optional<Value> MacroObject::GetAttribute(Interpreter& interpreter, std::string_view name) {
  if (name == "name") return interpreter.NewString(definition_.signature.text);
  if (name == "arguments") {
    List names;
    for (const std::string& parameter : definition_.signature.parameter_names) {
      names.push_back(interpreter.NewString(parameter));
    }
    return interpreter.NewTuple(std::move(names));
  }
  return std::nullopt;
}

Value MacroObject::Call(Interpreter& interpreter, const CallArguments& arguments) {
  const std::shared_ptr<Scope> scope = scope_.lock();
  if (scope == nullptr) FailRuntime("a macro was called outside the block that defines it");
  return interpreter.CallMacro(definition_, scope, arguments);
}

std::optional<Value> NamespaceObject::GetAttribute(Interpreter&, std::string_view name) {
  for (const auto& [key, value] : attributes_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void NamespaceObject::Set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes_) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  attributes_.emplace_back(name, std::move(value));
}

std::string LoopObject::Repr() const {
  return "<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_.size()) + ">";
}

std::optional<Value> LoopObject::GetAttribute(Interpreter&, std::string_view name) {
  const auto index = static_cast<std::int64_t>(index_);
  const auto length = static_cast<std::int64_t>(items_.size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(depth_);
  if (name == "depth0") return Value::Int(depth_ - 1);
  if (name == "previtem") {
    return index_ > 0 ? items_[index_ - 1] : Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? items_[index_ + 1] : Value::Undefined("there is no next item");
  }
  if (name == "cycle") return BindMethod(kCycle, shared_from_this());
  if (name == "changed") return BindMethod(kChanged, shared_from_this());
  return std::nullopt;
}

Value LoopObject::Call(Interpreter& interpreter, const CallArguments& arguments) {
  if (!loop_.recursive) {
    FailRuntime("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    FailRuntime("loop() takes one argument");
  }
  const std::shared_ptr<Scope> outer = outer_.lock();
  if (outer == nullptr) FailRuntime("a loop was called after its end");
  List items = interpreter.Iterate(arguments.positional[0]);
  return interpreter.NewString(interpreter.RunLoop(loop_, outer, std::move(items), depth_ + 1));
}

Value LoopObject::Cycle(const List& values) const {
  if (values.empty()) FailRuntime("no items for cycling given");
  return values[index_ % values.size()];
}

bool LoopObject::Changed(List values) {
  if (finished_) FailRuntime("a loop was used after its end");
  if (last_changed_ && last_changed_->size() == values.size()) {
    bool same = true;
    for (std::size_t i = 0; i < values.size(); ++i) same &= Equals((*last_changed_)[i], values[i]);
    if (same) return false;
  }
  last_changed_ = std::move(values);
  return true;
}

std::optional<Value> CyclerObject::GetAttribute(Interpreter&, std::string_view name) {
  if (name == "current") return items_[at_];
  if (name == "next") return BindMethod(kNext, shared_from_this());
  if (name == "reset") return BindMethod(kReset, shared_from_this());
  return std::nullopt;
}

Value CyclerObject::Next() {
  Value value = items_[at_];
  at_ = (at_ + 1) % items_.size();
  return value;
}

Value JoinerObject::Call(Interpreter&, const CallArguments&) {
  if (used_) return separator_;
  used_ = true;
  return Value::String("");
}

}  // namespace baton::text::jinja
