#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"
#include "text/jinja/object.h"
#include "text/jinja/value.h"

namespace baton::text::jinja {

// The variables of one block, loop or macro call. Names not found here are looked up in the parent.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent_scope) : parent(std::move(parent_scope)) {}
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<Symbol, Value>> variables;  // few: searched one by one
};

class LoopObject;
class NamespaceObject;

// One run of a template: walks the tree, writes the output, and counts steps and memory against the
// limits. Throws Error. Used once, by one thread.
class Interpreter {
 public:
  // `variables` by symbol; undefined where not given. All must outlive the run.
  Interpreter(const Ast& ast, std::vector<Value> variables, const Limits& limits, absl::Time now,
              absl::TimeZone time_zone);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string Run();

  // Services for builtins and objects.
  void Step(std::int64_t count = 1);
  // Throws unless `num_bytes` more can be allocated.
  void CheckAllocation(std::size_t num_bytes) const;
  Value NewString(std::string text);
  Value NewList(List items) { return NewSequence({SequenceKind::kList, std::move(items), {}, {}}); }
  Value NewTuple(List items) {
    return NewSequence({SequenceKind::kTuple, std::move(items), {}, {}});
  }
  Value NewGenerator(List items);
  Value NewSequence(Sequence sequence);
  Value NewDict(Dict dict);
  Value NewNamespace(std::vector<std::pair<std::string, Value>> attributes);

  // The items of anything iterable; of a generator what is left, which uses it up.
  List Iterate(const Value& value);
  // len(value).
  std::int64_t Length(const Value& value);
  std::string Print(const Value& value) const;
  Value GetAttribute(const Value& object, std::string_view name);
  Value GetItem(const Value& object, const Value& key);
  // An attribute path of a filter ("a.b.0"), integer parts as indexes.
  Value GetPath(const Value& object, const Value& path);
  Value Call(const Value& callee, const CallArguments& arguments);
  Value CallBuiltin(const Builtin& builtin, const Value& self, const CallArguments& arguments);
  absl::Time now() const { return now_; }
  const absl::TimeZone& time_zone() const { return time_zone_; }

  // For macros and recursive loops.
  Value CallMacro(const Stmt& macro, const std::shared_ptr<Scope>& scope,
                  const CallArguments& arguments);
  std::string RunLoop(const Stmt& loop, const std::shared_ptr<Scope>& scope, List items, int depth);

 private:
  friend class DepthGuard;
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

  // Statements (interpreter.cc).
  Flow Execute(const Body& body);
  Flow ExecuteOne(const Stmt& statement);
  Flow ExecuteIf(const Stmt& statement);
  void ExecuteFor(const Stmt& statement);
  void LoopOver(const Stmt& loop, List items, int depth);
  List FilterItems(const Stmt& loop, List items);
  void ExecuteWith(const Stmt& statement);
  void ExecuteCallBlock(const Stmt& statement);
  std::string Capture(const Body& body, const std::shared_ptr<Scope>& scope);
  void Assign(const Target& target, const Value& value);
  void AssignSymbol(Symbol symbol, const Value& value);
  void Write(std::string_view text);
  Value DefaultArgument(const Signature& signature, std::size_t index);

  // Expressions (evaluate.cc).
  Value Evaluate(const Expr& expr);
  Value EvaluateInner(const Expr& expr);
  Value EvaluateName(const Expr& expr);
  Value EvaluateCollection(const Expr& expr);
  Value EvaluateSubscript(const Expr& expr);
  Value EvaluateCall(const Expr& expr);
  Value EvaluateFilter(const Expr& expr, const Value* block);
  Value EvaluateTest(const Expr& expr);
  Value EvaluateConcat(const Expr& expr);
  Value EvaluateCompare(const Expr& expr);
  Value EvaluateConditional(const Expr& expr);
  Value Slice(const Value& object, const Expr& slice);
  CallArguments EvaluateArguments(const Arguments& arguments);
  Value ApplyFilters(const Expr& filters, const Value& block);

  const Ast& ast_;
  const Limits limits_;
  const absl::Time now_;
  const absl::TimeZone time_zone_;
  // Declared before everything that may hold values, which count against it when freed.
  std::size_t live_bytes_ = 0;
  std::int64_t num_steps_ = 0;
  int depth_ = 0;
  std::size_t captured_bytes_ = 0;  // in output buffers that are being written
  const std::vector<Value> variables_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;  // emptied at the end: may hold cycles
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
};

// Counts one level of nesting while it lives.
class DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter);
  ~DepthGuard() { --interpreter_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Interpreter& interpreter_;
};

}  // namespace baton::text::jinja
