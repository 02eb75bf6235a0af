#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_format.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

constexpr std::int64_t kBytesPerStep = 64;
constexpr std::size_t kOverheadBytes = 64;  // of a shared payload, roughly

// Makes `scope` the current one while it lives.
class ScopeGuard {
 public:
  ScopeGuard(std::shared_ptr<Scope>& current, std::shared_ptr<Scope> scope)
      : current_(current), saved_(std::exchange(current, std::move(scope))) {}
  ~ScopeGuard() { current_ = std::move(saved_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  std::shared_ptr<Scope>& current_;
  std::shared_ptr<Scope> saved_;
};

void SetVariable(Scope& scope, Symbol symbol, Value value) {
  for (auto& [name, old] : scope.variables) {
    if (name != symbol) continue;
    old = std::move(value);
    return;
  }
  scope.variables.emplace_back(symbol, std::move(value));
}

Symbol FindSymbol(const Ast& ast, std::string_view name) {
  const auto it = std::find(ast.names.begin(), ast.names.end(), name);
  return static_cast<Symbol>(it - ast.names.begin());
}

}  // namespace

DepthGuard::DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) {
  if (interpreter_.depth_ >= interpreter_.limits_.max_depth) {
    throw Error(ErrorKind::kLimit, "nested too deeply: an endless recursion?");
  }
  ++interpreter_.depth_;
}

Interpreter::Interpreter(const Ast& ast, std::vector<Value> variables, const Limits& limits,
                         absl::Time now, absl::TimeZone time_zone)
    : ast_(ast),
      limits_(limits),
      now_(now),
      time_zone_(time_zone),
      variables_(std::move(variables)),
      scope_(std::make_shared<Scope>(nullptr)) {}

Interpreter::~Interpreter() {
  // While this list holds every namespace, emptying one frees no other: no deep recursion.
  for (const auto& object : namespaces_) object->Clear();
}

std::string Interpreter::Run() {
  std::string output;
  out_ = &output;
  Execute(ast_.body);
  return output;
}

void Interpreter::Step(std::int64_t count) {
  num_steps_ += count;
  if (num_steps_ > limits_.max_steps) {
    throw Error(ErrorKind::kLimit, "too many steps: limit " + std::to_string(limits_.max_steps));
  }
}

void Interpreter::CheckAllocation(std::size_t num_bytes) const {
  if (num_bytes > limits_.max_memory_bytes || live_bytes_ > limits_.max_memory_bytes - num_bytes) {
    throw Error(ErrorKind::kLimit,
                "too much memory: limit " + std::to_string(limits_.max_memory_bytes) + " bytes");
  }
}

Value Interpreter::NewString(std::string text) {
  const std::size_t bytes = text.capacity() + kOverheadBytes;
  CheckAllocation(bytes);
  Step(1 + static_cast<std::int64_t>(text.size()) / kBytesPerStep);
  auto owned = std::make_unique<const std::string>(std::move(text));
  live_bytes_ += bytes;
  return Value::ShareString(std::shared_ptr<const std::string>(
      owned.release(), [live = &live_bytes_, bytes](const std::string* p) {
        *live -= bytes;
        delete p;
      }));
}

Value Interpreter::NewSequence(Sequence sequence) {
  const std::size_t bytes = sequence.items.capacity() * sizeof(Value) + kOverheadBytes;
  CheckAllocation(bytes);
  Step(1 + static_cast<std::int64_t>(sequence.items.size()));
  int depth = 0;
  for (const Value& item : sequence.items) depth = std::max(depth, item.depth());
  sequence.depth = depth + 1;
  if (sequence.depth > kMaxValueDepth) throw Error(ErrorKind::kLimit, "a list nested too deeply");
  auto owned = std::make_unique<const Sequence>(std::move(sequence));
  live_bytes_ += bytes;
  return Value::ShareSequence(std::shared_ptr<const Sequence>(
      owned.release(), [live = &live_bytes_, bytes](const Sequence* p) {
        *live -= bytes;
        delete p;
      }));
}

Value Interpreter::NewGenerator(List items) {
  Sequence sequence;
  sequence.kind = SequenceKind::kGenerator;
  sequence.items = std::move(items);
  sequence.repr = "<generator object>";
  return NewSequence(std::move(sequence));
}

Value Interpreter::NewDict(Dict dict) {
  // Per entry: two values, the hash key and its node in the index.
  const std::size_t bytes = dict.size() * (2 * sizeof(Value) + 96) + kOverheadBytes;
  CheckAllocation(bytes);
  Step(1 + static_cast<std::int64_t>(dict.size()));
  if (dict.depth() > kMaxValueDepth) throw Error(ErrorKind::kLimit, "a dict nested too deeply");
  auto owned = std::make_unique<const Dict>(std::move(dict));
  live_bytes_ += bytes;
  return Value::ShareDict(
      std::shared_ptr<const Dict>(owned.release(), [live = &live_bytes_, bytes](const Dict* p) {
        *live -= bytes;
        delete p;
      }));
}

Value Interpreter::NewNamespace(std::vector<std::pair<std::string, Value>> attributes) {
  // Namespaces live until the run ends, so that a cycle of them cannot leak.
  CheckAllocation(sizeof(NamespaceObject) + kOverheadBytes);
  live_bytes_ += sizeof(NamespaceObject) + kOverheadBytes;
  auto object = std::make_shared<NamespaceObject>();
  for (auto& [name, value] : attributes) object->Set(name, std::move(value));
  namespaces_.push_back(object);
  return Value::FromObject(std::move(object));
}

void Interpreter::Write(std::string_view text) {
  captured_bytes_ += text.size();
  if (captured_bytes_ > limits_.max_output_bytes) {
    throw Error(ErrorKind::kLimit,
                "output too long: limit " + std::to_string(limits_.max_output_bytes) + " bytes");
  }
  Step(static_cast<std::int64_t>(text.size()) / kBytesPerStep);
  out_->append(text);
}

std::string Interpreter::Capture(const Body& body, const std::shared_ptr<Scope>& scope) {
  std::string text;
  ScopeGuard guard(scope_, scope);
  std::string* const saved = std::exchange(out_, &text);
  try {
    Execute(body);
  } catch (...) {
    out_ = saved;
    throw;
  }
  out_ = saved;
  captured_bytes_ -= text.size();
  return text;
}

Interpreter::Flow Interpreter::Execute(const Body& body) {
  for (const auto& statement : body) {
    try {
      const Flow flow = ExecuteOne(*statement);
      if (flow != Flow::kNext) return flow;
    } catch (Error& error) {
      error.SetPosition(statement->position);
      throw;
    }
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteOne(const Stmt& statement) {
  DepthGuard guard(*this);
  Step();
  const auto nested = [this] { return std::make_shared<Scope>(scope_); };
  switch (statement.kind) {
    case StmtKind::kText:
      Write(statement.text);
      break;
    case StmtKind::kPrint: {
      const Value value = Evaluate(*statement.expr);
      if (value.is_string()) {
        Write(value.str());
      } else {
        Write(Print(value));
      }
      break;
    }
    case StmtKind::kIf:
      return ExecuteIf(statement);
    case StmtKind::kFor:
      ExecuteFor(statement);
      break;
    case StmtKind::kSet:
      Assign(statement.target, Evaluate(*statement.expr));
      break;
    case StmtKind::kSetBlock: {
      Value text = NewString(Capture(statement.body, nested()));
      if (statement.expr != nullptr) text = ApplyFilters(*statement.expr, text);
      Assign(statement.target, text);
      break;
    }
    case StmtKind::kMacro:
      AssignSymbol(statement.signature.name,
                   Value::FromObject(std::make_shared<MacroObject>(statement, scope_)));
      break;
    case StmtKind::kCallBlock:
      ExecuteCallBlock(statement);
      break;
    case StmtKind::kFilterBlock: {
      const Value text = NewString(Capture(statement.body, nested()));
      Write(Print(ApplyFilters(*statement.expr, text)));
      break;
    }
    case StmtKind::kWith:
      ExecuteWith(statement);
      break;
    case StmtKind::kScope: {
      ScopeGuard scope(scope_, nested());
      return Execute(statement.body);
    }
    case StmtKind::kGroup:
      return Execute(statement.body);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteIf(const Stmt& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (condition == nullptr || IsTruthy(Evaluate(*condition))) return Execute(body);
  }
  return Flow::kNext;
}

void Interpreter::ExecuteFor(const Stmt& statement) {
  LoopOver(statement, Iterate(Evaluate(*statement.expr)), /*depth=*/1);
}

List Interpreter::FilterItems(const Stmt& loop, List items) {
  List kept;
  for (Value& item : items) {
    ScopeGuard scope(scope_, std::make_shared<Scope>(scope_));
    Assign(loop.target, item);
    if (IsTruthy(Evaluate(*loop.condition))) kept.push_back(std::move(item));
  }
  return kept;
}

void Interpreter::LoopOver(const Stmt& loop, List items, int depth) {
  if (loop.condition != nullptr) items = FilterItems(loop, std::move(items));
  if (items.empty()) {
    ScopeGuard scope(scope_, std::make_shared<Scope>(scope_));
    Execute(loop.other_body);
    return;
  }
  static constexpr Symbol kLoop = 0;  // the first name the parser interns
  const std::size_t count = items.size();
  const auto object = std::make_shared<LoopObject>(loop, std::move(items), depth, scope_);
  const struct Finisher {
    LoopObject& loop;
    ~Finisher() { loop.Finish(); }
  } finisher{*object};
  ScopeGuard scope(scope_, std::make_shared<Scope>(scope_));
  for (std::size_t i = 0; i < count; ++i) {
    Step();
    object->SetIndex(i);
    scope_->variables.clear();  // what one round sets, the next does not see
    SetVariable(*scope_, kLoop, Value::FromObject(object));
    Assign(loop.target, object->items()[i]);
    if (Execute(loop.body) == Flow::kBreak) break;
  }
}

std::string Interpreter::RunLoop(const Stmt& loop, const std::shared_ptr<Scope>& scope, List items,
                                 int depth) {
  DepthGuard guard(*this);
  std::string text;
  ScopeGuard scope_guard(scope_, scope);
  std::string* const saved = std::exchange(out_, &text);
  try {
    LoopOver(loop, std::move(items), depth);
  } catch (...) {
    out_ = saved;
    throw;
  }
  out_ = saved;
  captured_bytes_ -= text.size();
  return text;
}

void Interpreter::ExecuteWith(const Stmt& statement) {
  std::vector<Value> values;
  for (const auto& [target, expr] : statement.assignments) values.push_back(Evaluate(*expr));
  ScopeGuard scope(scope_, std::make_shared<Scope>(scope_));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Assign(statement.assignments[i].first, values[i]);
  }
  Execute(statement.body);
}

void Interpreter::ExecuteCallBlock(const Stmt& statement) {
  const Value caller = Value::FromObject(std::make_shared<MacroObject>(statement, scope_));
  const Expr& call = *statement.expr;
  const Value callee = Evaluate(*call.left);
  CallArguments arguments = EvaluateArguments(*call.arguments);
  arguments.named.emplace_back("caller", caller);
  Write(Print(Call(callee, arguments)));
}

void Interpreter::AssignSymbol(Symbol symbol, const Value& value) {
  SetVariable(*scope_, symbol, value);
}

void Interpreter::Assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const List items = Iterate(value);
    if (items.size() != target.elements.size()) {
      FailRuntime("cannot unpack " + std::to_string(items.size()) + " values into " +
                  std::to_string(target.elements.size()));
    }
    for (std::size_t i = 0; i < items.size(); ++i) Assign(target.elements[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    AssignSymbol(target.symbol, value);
    return;
  }
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [name, candidate] : scope->variables) {
      if (name != target.symbol) continue;
      auto* object =
          candidate.is_object() ? dynamic_cast<NamespaceObject*>(&candidate.object()) : nullptr;
      if (object == nullptr) FailRuntime("cannot assign attribute on non-namespace object");
      object->Set(target.attribute, value);
      return;
    }
  }
  FailRuntime("cannot assign attribute on non-namespace object");
}

Value Interpreter::DefaultArgument(const Signature& signature, std::size_t index) {
  const std::size_t num_required = signature.parameters.size() - signature.defaults.size();
  if (index >= num_required) return Evaluate(*signature.defaults[index - num_required]);
  return Value::Undefined("parameter '" + signature.parameter_names[index] + "' was not provided");
}

Value Interpreter::CallMacro(const Stmt& macro, const std::shared_ptr<Scope>& scope,
                             const CallArguments& arguments) {
  DepthGuard guard(*this);
  const Signature& signature = macro.signature;
  const std::size_t num_parameters = signature.parameters.size();
  auto inner = std::make_shared<Scope>(scope);
  auto named = arguments.named;
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto it = std::find_if(named.begin(), named.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (it == named.end()) return std::nullopt;
    Value value = std::move(it->second);
    named.erase(it);
    return value;
  };
  ScopeGuard scope_guard(scope_, inner);
  const std::size_t num_given = std::min(arguments.positional.size(), num_parameters);
  for (std::size_t i = 0; i < num_given; ++i) {
    SetVariable(*inner, signature.parameters[i], arguments.positional[i]);
  }
  bool explicit_caller = false;
  for (std::size_t i = num_given; i < num_parameters; ++i) {
    explicit_caller |= signature.parameter_names[i] == "caller";
    std::optional<Value> value = take_named(signature.parameter_names[i]);
    SetVariable(*inner, signature.parameters[i],
                value ? *std::move(value) : DefaultArgument(signature, i));
  }
  if (signature.uses_caller && !explicit_caller) {
    SetVariable(*inner, FindSymbol(ast_, "caller"),
                take_named("caller").value_or(Value::Undefined("No caller defined")));
  }
  if (signature.uses_kwargs) {
    Dict dict;
    for (auto& [name, value] : named) dict.Set(name, std::move(value));
    SetVariable(*inner, FindSymbol(ast_, "kwargs"), NewDict(std::move(dict)));
  } else if (!named.empty()) {
    FailRuntime("macro '" + signature.text + "' takes no keyword argument '" + named[0].first +
                "'");
  }
  if (signature.uses_varargs) {
    List rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_given),
              arguments.positional.end());
    SetVariable(*inner, FindSymbol(ast_, "varargs"), NewTuple(std::move(rest)));
  } else if (arguments.positional.size() > num_parameters) {
    FailRuntime("macro '" + signature.text + "' takes not more than " +
                std::to_string(num_parameters) + " argument(s)");
  }
  return NewString(Capture(macro.body, inner));
}

}  // namespace baton::text::jinja
