#include <algorithm>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/limits.h"
#include "text/jinja/parser_core.h"

namespace baton::text::jinja {
namespace {

// Bounds the parser's own recursion.
class Nesting {
 public:
  Nesting(int& depth, Position position) : depth_(depth) {
    if (++depth_ > kMaxStatementDepth) {
      --depth_;
      throw Error(ErrorKind::kSyntax, "expression nested too deeply", position);
    }
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

bool IsReserved(std::string_view name) {
  return name == "else" || name == "or" || name == "and" || name == "if" || name == "in";
}

}  // namespace

ExprPtr Parser::Make(ExprKind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->position = Current().position;
  return expr;
}

ExprPtr Parser::Finish(ExprPtr expr) const {
  int depth = 0;
  const auto see = [&](const ExprPtr& child) {
    if (child != nullptr) depth = std::max(depth, child->depth);
  };
  see(expr->left);
  see(expr->right);
  for (const ExprPtr& item : expr->items) see(item);
  for (const auto& [op, operand] : expr->comparisons) see(operand);
  if (expr->arguments != nullptr) {
    for (const ExprPtr& item : expr->arguments->positional) see(item);
    for (const auto& [name, item] : expr->arguments->named) see(item);
    see(expr->arguments->star);
    see(expr->arguments->double_star);
  }
  expr->depth = depth + 1;
  if (expr->depth > kMaxExpressionDepth) {
    throw Error(ErrorKind::kSyntax, "expression nested too deeply", expr->position);
  }
  return expr;
}

ExprPtr Parser::MakeBinary(Operator op, ExprPtr left, ExprPtr right, Position position) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = ExprKind::kBinary;
  expr->op = op;
  expr->position = position;
  expr->left = std::move(left);
  expr->right = std::move(right);
  return Finish(std::move(expr));
}

ExprPtr Parser::ParseConditional() {
  Nesting nesting(expression_depth_, Current().position);
  ExprPtr value = ParseOr();
  while (IsKeyword("if")) {
    ExprPtr expr = Make(ExprKind::kConditional);
    Advance();
    expr->items.push_back(ParseOr());
    expr->left = std::move(value);
    if (SkipKeyword("else")) expr->right = ParseConditional();
    value = Finish(std::move(expr));
  }
  return value;
}

ExprPtr Parser::ParseOr() {
  ExprPtr left = ParseAnd();
  while (IsKeyword("or")) {
    ExprPtr expr = Make(ExprKind::kOr);
    Advance();
    expr->left = std::move(left);
    expr->right = ParseAnd();
    left = Finish(std::move(expr));
  }
  return left;
}

ExprPtr Parser::ParseAnd() {
  ExprPtr left = ParseNot();
  while (IsKeyword("and")) {
    ExprPtr expr = Make(ExprKind::kAnd);
    Advance();
    expr->left = std::move(left);
    expr->right = ParseNot();
    left = Finish(std::move(expr));
  }
  return left;
}

ExprPtr Parser::ParseNot() {
  if (!IsKeyword("not")) return ParseCompare();
  Nesting nesting(expression_depth_, Current().position);
  ExprPtr expr = Make(ExprKind::kNot);
  Advance();
  expr->left = ParseNot();
  return Finish(std::move(expr));
}

ExprPtr Parser::ParseCompare() {
  static constexpr std::pair<std::string_view, Operator> kComparisons[] = {
      {"==", Operator::kEqual}, {"!=", Operator::kNotEqual},       {"<=", Operator::kLessOrEqual},
      {"<", Operator::kLess},   {">=", Operator::kGreaterOrEqual}, {">", Operator::kGreater}};
  ExprPtr first = ParseSum();
  ExprPtr expr;
  const auto add = [&](Operator op, Position position) {
    if (expr == nullptr) {
      expr = std::make_unique<Expr>();
      expr->kind = ExprKind::kCompare;
      expr->position = position;
    }
    expr->comparisons.emplace_back(op, ParseSum());
  };
  while (true) {
    const Position position = Current().position;
    const auto* found = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                     [&](const auto& entry) { return IsOperator(entry.first); });
    if (found != std::end(kComparisons)) {
      Advance();
      add(found->second, position);
    } else if (SkipKeyword("in")) {
      add(Operator::kIn, position);
    } else if (IsKeyword("not") && Next().kind == TokenKind::kName && Next().text == "in") {
      Advance();
      Advance();
      add(Operator::kNotIn, position);
    } else {
      break;
    }
  }
  if (expr == nullptr) return first;
  expr->left = std::move(first);
  return Finish(std::move(expr));
}

ExprPtr Parser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (IsOperator("+") || IsOperator("-")) {
    const Position position = Current().position;
    const Operator op = IsOperator("+") ? Operator::kAdd : Operator::kSubtract;
    Advance();
    ExprPtr right = ParseConcat();
    left = MakeBinary(op, std::move(left), std::move(right), position);
  }
  return left;
}

ExprPtr Parser::ParseConcat() {
  ExprPtr first = ParseProduct();
  if (!IsOperator("~")) return first;
  ExprPtr expr = Make(ExprKind::kConcat);
  expr->items.push_back(std::move(first));
  while (SkipOperator("~")) expr->items.push_back(ParseProduct());
  return Finish(std::move(expr));
}

ExprPtr Parser::ParseProduct() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"*", Operator::kMultiply},
      {"/", Operator::kDivide},
      {"//", Operator::kFloorDivide},
      {"%", Operator::kModulo}};
  ExprPtr left = ParsePower();
  while (true) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& entry) { return IsOperator(entry.first); });
    if (found == std::end(kOperators)) return left;
    const Position position = Current().position;
    Advance();
    ExprPtr right = ParsePower();
    left = MakeBinary(found->second, std::move(left), std::move(right), position);
  }
}

ExprPtr Parser::ParsePower() {
  ExprPtr left = ParseUnary(/*with_filter=*/true);
  while (IsOperator("**")) {
    const Position position = Current().position;
    Advance();
    ExprPtr right = ParseUnary(/*with_filter=*/true);
    left = MakeBinary(Operator::kPower, std::move(left), std::move(right), position);
  }
  return left;
}

ExprPtr Parser::ParseUnary(bool with_filter) {
  ExprPtr expr;
  if (IsOperator("-") || IsOperator("+")) {
    Nesting nesting(expression_depth_, Current().position);
    expr = Make(ExprKind::kUnary);
    expr->op = IsOperator("-") ? Operator::kSubtract : Operator::kAdd;
    Advance();
    expr->left = ParseUnary(/*with_filter=*/false);
    expr = Finish(std::move(expr));
  } else {
    expr = ParsePrimary();
  }
  expr = ParsePostfix(std::move(expr));
  return with_filter ? ParseFiltersAndTests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::ParsePrimary() {
  if (Current().kind == TokenKind::kName) return ParseNameOrConstant();
  if (Current().kind == TokenKind::kString) {
    ExprPtr expr = Make(ExprKind::kConstant);
    std::string text;
    for (; Current().kind == TokenKind::kString; Advance()) text += Current().text;
    expr->value = Value::String(std::move(text));
    return expr;
  }
  if (Current().kind == TokenKind::kNumber) {
    ExprPtr expr = Make(ExprKind::kConstant);
    expr->value = Current().value;
    Advance();
    return expr;
  }
  if (SkipOperator("(")) {
    ExprPtr expr = ParseTuple(/*with_conditional=*/true, /*explicit_parentheses=*/true);
    ExpectOperator(")");
    return expr;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  FailUnexpected();
}

ExprPtr Parser::ParseNameOrConstant() {
  const std::string& name = Current().text;
  ExprPtr expr = Make(ExprKind::kConstant);
  if (name == "true" || name == "True") {
    expr->value = Value::Bool(true);
  } else if (name == "false" || name == "False") {
    expr->value = Value::Bool(false);
  } else if (name == "none" || name == "None") {
    expr->value = Value::None();
  } else {
    expr->kind = ExprKind::kName;
    expr->symbol = Intern(name);
    for (Signature* signature : signatures_) {
      signature->uses_varargs |= name == "varargs";
      signature->uses_kwargs |= name == "kwargs";
      signature->uses_caller |= name == "caller";
    }
  }
  Advance();
  return expr;
}

ExprPtr Parser::ParseList() {
  ExprPtr expr = Make(ExprKind::kList);
  ExpectOperator("[");
  while (!IsOperator("]")) {
    if (!expr->items.empty()) ExpectOperator(",");
    if (IsOperator("]")) break;
    expr->items.push_back(ParseExpression());
  }
  ExpectOperator("]");
  return Finish(std::move(expr));
}

ExprPtr Parser::ParseDict() {
  ExprPtr expr = Make(ExprKind::kDict);
  ExpectOperator("{");
  while (!IsOperator("}")) {
    if (!expr->items.empty()) ExpectOperator(",");
    if (IsOperator("}")) break;
    expr->items.push_back(ParseExpression());
    ExpectOperator(":");
    expr->items.push_back(ParseExpression());
  }
  ExpectOperator("}");
  return Finish(std::move(expr));
}

ExprPtr Parser::ParseTuple(bool with_conditional, bool explicit_parentheses,
                           std::string_view end_keyword) {
  ExprPtr tuple = Make(ExprKind::kTuple);
  bool is_tuple = false;
  const auto at_end = [&] {
    return Current().kind == TokenKind::kBlockEnd || Current().kind == TokenKind::kVariableEnd ||
           IsOperator(")") || (!end_keyword.empty() && IsKeyword(end_keyword));
  };
  while (true) {
    if (!tuple->items.empty()) ExpectOperator(",");
    if (at_end()) break;
    tuple->items.push_back(with_conditional ? ParseExpression() : ParseOr());
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->items.empty()) return std::move(tuple->items.front());
    if (!explicit_parentheses) FailUnexpected();
  }
  return Finish(std::move(tuple));
}

ExprPtr Parser::ParsePostfix(ExprPtr expr) {
  while (true) {
    if (IsOperator(".")) {
      expr = ParseAttribute(std::move(expr));
    } else if (IsOperator("[")) {
      expr = ParseSubscript(std::move(expr));
    } else if (IsOperator("(")) {
      ExprPtr call = Make(ExprKind::kCall);
      if (expr->kind == ExprKind::kName) called_.emplace_back(expr->symbol, expr->position);
      call->left = std::move(expr);
      call->arguments = ParseArguments();
      expr = Finish(std::move(call));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::ParseAttribute(ExprPtr expr) {
  ExpectOperator(".");
  ExprPtr out = Make(ExprKind::kAttribute);
  out->left = std::move(expr);
  if (Current().kind == TokenKind::kName) {
    out->text = Current().text;
  } else if (Current().kind == TokenKind::kNumber && Current().value.is_int()) {
    out->kind = ExprKind::kSubscript;
    out->right = Make(ExprKind::kConstant);
    out->right->value = Current().value;
  } else {
    Fail("expected name or number");
  }
  Advance();
  return Finish(std::move(out));
}

ExprPtr Parser::ParseSubscript(ExprPtr expr) {
  ExprPtr out = Make(ExprKind::kSubscript);
  ExpectOperator("[");
  out->left = std::move(expr);
  ExprPtr tuple = Make(ExprKind::kTuple);
  while (!IsOperator("]")) {
    if (!tuple->items.empty()) ExpectOperator(",");
    tuple->items.push_back(ParseSubscriptItem());
  }
  ExpectOperator("]");
  if (tuple->items.empty()) Fail("an empty subscript");
  if (tuple->items.size() > 1) Fail("a subscript of several items");
  out->right = std::move(tuple->items.front());
  return Finish(std::move(out));
}

ExprPtr Parser::ParseSubscriptItem() {
  ExprPtr slice = Make(ExprKind::kSlice);
  slice->items.resize(3);
  bool is_slice = false;
  std::size_t part = 0;
  while (!IsOperator("]") && !IsOperator(",")) {
    if (SkipOperator(":")) {
      is_slice = true;
      if (++part > 2) FailUnexpected();
    } else if (slice->items[part] != nullptr) {
      FailUnexpected();
    } else {
      slice->items[part] = ParseExpression();
    }
  }
  if (is_slice) return Finish(std::move(slice));
  if (slice->items[0] == nullptr) FailUnexpected();
  return std::move(slice->items[0]);
}

ExprPtr Parser::ParseFiltersAndTests(ExprPtr expr) {
  while (true) {
    if (IsOperator("|")) {
      expr = ParseFilters(std::move(expr), /*first_without_pipe=*/false);
    } else if (IsKeyword("is")) {
      expr = ParseTest(std::move(expr));
    } else if (IsOperator("(")) {  // (value | filter)(arguments): calls what the filter gives
      ExprPtr call = Make(ExprKind::kCall);
      call->left = std::move(expr);
      call->arguments = ParseArguments();
      expr = Finish(std::move(call));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::ParseFilters(ExprPtr expr, bool first_without_pipe) {
  bool without_pipe = first_without_pipe;
  while (without_pipe || IsOperator("|")) {
    if (!without_pipe) Advance();
    without_pipe = false;
    ExprPtr filter = Make(ExprKind::kFilter);
    filter->text = ExpectName();
    filter->builtin = FindFilter(filter->text);
    if (filter->builtin == nullptr) {
      throw Error(ErrorKind::kUnsupported, "No filter named '" + filter->text + "'.",
                  filter->position);
    }
    filter->left = std::move(expr);
    filter->arguments = IsOperator("(") ? ParseArguments() : std::make_unique<Arguments>();
    CheckNamedBuiltin(*filter);
    expr = Finish(std::move(filter));
  }
  return expr;
}

ExprPtr Parser::ParseTest(ExprPtr expr) {
  ExpectKeyword("is");
  const bool negated = SkipKeyword("not");
  ExprPtr test = Make(ExprKind::kTest);
  test->text = ExpectName();
  test->builtin = FindTest(test->text);
  if (test->builtin == nullptr) {
    throw Error(ErrorKind::kUnsupported, "No test named '" + test->text + "'.", test->position);
  }
  if (expr->kind == ExprKind::kName &&
      (test->text == "defined" || test->text == "undefined" || test->text == "callable")) {
    tested_defined_.insert(expr->symbol);
  }
  test->left = std::move(expr);
  const TokenKind kind = Current().kind;
  const bool argument_begins = kind == TokenKind::kString || kind == TokenKind::kNumber ||
                               IsOperator("[") || IsOperator("{") ||
                               (kind == TokenKind::kName && !IsReserved(Current().text));
  if (IsOperator("(")) {
    test->arguments = ParseArguments();
  } else {
    test->arguments = std::make_unique<Arguments>();
    if (argument_begins) {
      if (IsKeyword("is")) Fail("You cannot chain multiple tests with is");
      if (!IsKeyword("not")) {
        test->arguments->positional.push_back(ParsePostfix(ParsePrimary()));
      }
    }
  }
  test = Finish(std::move(test));
  if (!negated) return test;
  ExprPtr negation = std::make_unique<Expr>();
  negation->kind = ExprKind::kNot;
  negation->position = test->position;
  negation->left = std::move(test);
  return Finish(std::move(negation));
}

std::unique_ptr<Arguments> Parser::ParseArguments() {
  auto arguments = std::make_unique<Arguments>();
  ExpectOperator("(");
  bool first = true;
  while (!IsOperator(")")) {
    if (!first) ExpectOperator(",");
    first = false;
    if (IsOperator(")")) break;
    ParseArgument(*arguments);
  }
  ExpectOperator(")");
  return arguments;
}

void Parser::ParseArgument(Arguments& arguments) {
  constexpr std::string_view kInvalid = "invalid syntax for function call expression";
  if (SkipOperator("*")) {
    if (arguments.star != nullptr || arguments.double_star != nullptr) Fail(std::string(kInvalid));
    arguments.star = ParseExpression();
  } else if (SkipOperator("**")) {
    if (arguments.double_star != nullptr) Fail(std::string(kInvalid));
    arguments.double_star = ParseExpression();
  } else if (Current().kind == TokenKind::kName && Next().kind == TokenKind::kOperator &&
             Next().text == "=") {
    if (arguments.double_star != nullptr) Fail(std::string(kInvalid));
    std::string name = ExpectName();
    ExpectOperator("=");
    for (const auto& [other, value] : arguments.named) {
      if (other == name) Fail("keyword argument repeated: " + name);
    }
    arguments.named.emplace_back(std::move(name), ParseExpression());
  } else {
    if (arguments.star != nullptr || arguments.double_star != nullptr || !arguments.named.empty()) {
      Fail(std::string(kInvalid));
    }
    arguments.positional.push_back(ParseExpression());
  }
}

}  // namespace baton::text::jinja
