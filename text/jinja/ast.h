#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/error.h"
#include "text/jinja/value.h"

namespace baton::text::jinja {

struct Builtin;
struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

// A variable's name, as an index into the program's table of names.
using Symbol = int;

enum class ExprKind : std::uint8_t {
  kConstant,   // value
  kName,       // symbol
  kList,       // items
  kTuple,      // items
  kDict,       // items: key, value, key, value, ...
  kAttribute,  // left.text
  kSubscript,  // left[right]
  kSlice,      // items: begin, end, step, each maybe null; only as the right of kSubscript
  kCall,       // left(arguments)
  kFilter,     // left | builtin(arguments); left is null for the body of a filter block
  kTest,       // left is builtin(arguments)
  kUnary,      // op left
  kBinary,     // left op right
  kConcat,     // items joined by ~
  kCompare,    // left, then comparisons
  kAnd,
  kOr,
  kNot,
  kConditional,  // left if items[0] else right (right may be null)
};

enum class Operator : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
};

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};

// One node for all kinds of expression; which members count stands beside the kind.
struct Expr {
  ExprKind kind = ExprKind::kConstant;
  Operator op = Operator::kAdd;
  Symbol symbol = -1;
  int depth = 1;  // of the tree below, bounded by kMaxExpressionDepth
  Position position;
  const Builtin* builtin = nullptr;
  Value value;
  std::string text;
  ExprPtr left;
  ExprPtr right;
  std::vector<ExprPtr> items;
  std::vector<std::pair<Operator, ExprPtr>> comparisons;
  std::unique_ptr<Arguments> arguments;
};

enum class StmtKind : std::uint8_t {
  kText,         // text
  kPrint,        // expr
  kIf,           // branches: condition and body; a null condition is else
  kFor,          // for target in expr if condition: body else other_body
  kSet,          // target = expr
  kSetBlock,     // target = what body prints, through the filters of expr (maybe null)
  kMacro,        // signature, body
  kCallBlock,    // expr is the call; signature and body are the caller's
  kFilterBlock,  // body through the filters of expr
  kWith,         // targets = exprs, in a scope of their own: body
  kScope,        // body in a scope of its own (block)
  kGroup,        // body (generation)
  kBreak,
  kContinue,
};

// Where a value is stored: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  Symbol symbol = -1;
  std::string attribute;         // not empty: symbol.attribute
  std::vector<Target> elements;  // not empty: a tuple
  bool is_tuple = false;
  Position position;
};

// A macro's parameters and what its body looks at.
struct Signature {
  Symbol name = -1;  // -1: a caller
  std::string text;
  std::vector<Symbol> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  bool recursive = false;  // kFor
  Position position;
  std::string text;
  Target target;
  ExprPtr expr;
  ExprPtr condition;
  Body body;
  Body other_body;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;  // kWith
  Signature signature;
};

// A parsed template. Immutable.
struct Ast {
  Body body;
  std::vector<std::string> names;  // by symbol
};

}  // namespace baton::text::jinja
