#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/object.h"

namespace baton::text::jinja {

// A global function or, with an object, a bound method.
class FunctionObject final : public Object {
 public:
  explicit FunctionObject(const Builtin& builtin, Value self = Value())
      : builtin_(builtin), self_(std::move(self)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string Repr() const override { return "<built-in " + std::string(builtin_.name) + ">"; }
  std::optional<Value> GetAttribute(Interpreter&, std::string_view) override {
    return std::nullopt;
  }
  bool is_callable() const override { return true; }
  Value Call(Interpreter& interpreter, const CallArguments& arguments) override {
    return interpreter.CallBuiltin(builtin_, self_, arguments);
  }

 private:
  const Builtin& builtin_;
  const Value self_;
};

// A macro, or the body of a call block. Refers to the scope it was defined in without owning it,
// since that scope holds the macro.
class MacroObject final : public Object {
 public:
  MacroObject(const Stmt& definition, std::weak_ptr<Scope> scope)
      : definition_(definition), scope_(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string Repr() const override { return "<Macro '" + definition_.signature.text + "'>"; }
  std::optional<Value> GetAttribute(Interpreter& interpreter, std::string_view name) override;
  bool is_callable() const override { return true; }
  Value Call(Interpreter& interpreter, const CallArguments& arguments) override;

 private:
  const Stmt& definition_;
  const std::weak_ptr<Scope> scope_;
};

// namespace(): the one kind of value a template can change.
class NamespaceObject final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::string Repr() const override { return "<Namespace>"; }
  std::optional<Value> GetAttribute(Interpreter& interpreter, std::string_view name) override;
  bool is_callable() const override { return false; }
  Value Call(Interpreter&, const CallArguments&) override { return Value::Undefined(); }
  void Set(std::string_view name, Value value);
  void Clear() { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

// The variable `loop`.
class LoopObject final : public Object, public std::enable_shared_from_this<LoopObject> {
 public:
  LoopObject(const Stmt& loop, List items, int depth, std::weak_ptr<Scope> outer)
      : loop_(loop), items_(std::move(items)), depth_(depth), outer_(std::move(outer)) {}
  std::string_view type_name() const override { return "LoopContext"; }
  std::string Repr() const override;
  std::optional<Value> GetAttribute(Interpreter& interpreter, std::string_view name) override;
  bool is_callable() const override { return true; }
  // loop(items): the same loop over further items, when it is recursive.
  Value Call(Interpreter& interpreter, const CallArguments& arguments) override;

  const List& items() const { return items_; }
  void SetIndex(std::size_t index) { index_ = index; }
  Value Cycle(const List& values) const;
  bool Changed(List values);
  // Ends the loop: from now on it remembers nothing, lest it hold a value that holds it.
  void Finish() {
    finished_ = true;
    last_changed_.reset();
  }

 private:
  const Stmt& loop_;
  const List items_;
  const int depth_;  // from 1
  const std::weak_ptr<Scope> outer_;
  std::size_t index_ = 0;
  bool finished_ = false;
  std::optional<List> last_changed_;
};

// cycler() and joiner().
class CyclerObject final : public Object, public std::enable_shared_from_this<CyclerObject> {
 public:
  explicit CyclerObject(List items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::string Repr() const override { return "<Cycler>"; }
  std::optional<Value> GetAttribute(Interpreter& interpreter, std::string_view name) override;
  bool is_callable() const override { return false; }
  Value Call(Interpreter&, const CallArguments&) override { return Value::Undefined(); }
  Value Next();
  void Reset() { at_ = 0; }

 private:
  const List items_;
  std::size_t at_ = 0;
};

class JoinerObject final : public Object {
 public:
  explicit JoinerObject(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  std::string Repr() const override { return "<Joiner>"; }
  std::optional<Value> GetAttribute(Interpreter&, std::string_view) override {
    return std::nullopt;
  }
  bool is_callable() const override { return true; }
  Value Call(Interpreter&, const CallArguments&) override;

 private:
  const Value separator_;
  bool used_ = false;
};

}  // namespace baton::text::jinja
