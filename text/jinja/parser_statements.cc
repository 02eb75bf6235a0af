#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/limits.h"
#include "text/jinja/parser.h"
#include "text/jinja/parser_core.h"

namespace baton::text::jinja {
namespace {

std::string DescribeToken(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kBlockEnd:
    case TokenKind::kVariableEnd:
      return "end of tag '" + token.text + "'";
    case TokenKind::kText:
    case TokenKind::kBlockBegin:
    case TokenKind::kVariableBegin:
      return "text";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace

bool Parser::IsOperator(std::string_view op) const {
  return Current().kind == TokenKind::kOperator && Current().text == op;
}
bool Parser::IsKeyword(std::string_view name) const {
  return Current().kind == TokenKind::kName && Current().text == name;
}
bool Parser::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Advance();
  return true;
}
bool Parser::SkipKeyword(std::string_view name) {
  if (!IsKeyword(name)) return false;
  Advance();
  return true;
}

void Parser::Fail(std::string message) const {
  throw Error(ErrorKind::kSyntax, std::move(message), Current().position);
}
void Parser::FailUnexpected() const { Fail("unexpected " + DescribeToken(Current())); }

void Parser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) {
    Fail("expected '" + std::string(op) + "', got " + DescribeToken(Current()));
  }
}
void Parser::ExpectKeyword(std::string_view name) {
  if (!SkipKeyword(name)) {
    Fail("expected '" + std::string(name) + "', got " + DescribeToken(Current()));
  }
}
void Parser::ExpectBlockEnd() {
  if (Current().kind != TokenKind::kBlockEnd) {
    Fail("expected end of tag, got " + DescribeToken(Current()));
  }
  Advance();
}
std::string Parser::ExpectName() {
  if (Current().kind != TokenKind::kName) Fail("expected a name, got " + DescribeToken(Current()));
  std::string name = Current().text;
  Advance();
  return name;
}

Symbol Parser::Intern(std::string_view name) {
  const auto [it, is_new] =
      symbols_.try_emplace(std::string(name), static_cast<Symbol>(names_.size()));
  if (is_new) names_.emplace_back(name);
  return it->second;
}

// A function that nothing defines can only fail, so the template is refused now. A template that
// asks "is defined" first knows what it does.
void Parser::CheckCalledNames() const {
  for (const auto& [symbol, position] : called_) {
    const std::string& name = names_[symbol];
    if (assigned_.contains(symbol) || tested_defined_.contains(symbol) ||
        FindGlobal(name) != nullptr) {
      continue;
    }
    throw Error(ErrorKind::kUnsupported, "No function named '" + name + "'.", position);
  }
}

// map("upper") and select("odd") name a filter or test in a string.
void Parser::CheckNamedBuiltin(const Expr& filter) const {
  const std::string& name = filter.text;
  const bool by_attribute = name == "selectattr" || name == "rejectattr";
  if (name != "map" && name != "select" && name != "reject" && !by_attribute) return;
  const std::size_t index = by_attribute ? 1 : 0;
  const auto& positional = filter.arguments->positional;
  if (positional.size() <= index || positional[index]->kind != ExprKind::kConstant ||
      !positional[index]->value.is_string()) {
    return;
  }
  const std::string& inner = positional[index]->value.str();
  if (name == "map" ? FindFilter(inner) != nullptr : FindTest(inner) != nullptr) return;
  throw Error(ErrorKind::kUnsupported,
              (name == "map" ? "No filter named '" : "No test named '") + inner + "'.",
              positional[index]->position);
}

Ast Parser::Run() {
  Ast ast;
  for (const std::string_view name : {"loop", "varargs", "kwargs", "caller"}) {
    assigned_.insert(Intern(name));
  }
  ast.body = ParseBody({});
  CheckCalledNames();
  ast.names = std::move(names_);
  return ast;
}

std::unique_ptr<Stmt> Parser::MakeStatement(StmtKind kind) const {
  auto statement = std::make_unique<Stmt>();
  statement->kind = kind;
  statement->position = Current().position;
  return statement;
}

Body Parser::ParseBody(const EndTags& end) {
  if (++statement_depth_ > kMaxStatementDepth) Fail("blocks nested too deeply");
  Body body;
  while (Current().kind != TokenKind::kEnd) {
    if (Current().kind == TokenKind::kText) {
      auto statement = MakeStatement(StmtKind::kText);
      statement->text = Current().text;
      body.push_back(std::move(statement));
      Advance();
    } else if (Current().kind == TokenKind::kVariableBegin) {
      Advance();
      body.push_back(ParsePrint());
      if (Current().kind != TokenKind::kVariableEnd) {
        Fail("expected end of print statement, got " + DescribeToken(Current()));
      }
      Advance();
    } else {
      Advance();  // kBlockBegin
      for (const std::string_view tag : end.tags) {
        if (!IsKeyword(tag)) continue;
        --statement_depth_;
        return body;
      }
      body.push_back(ParseStatement());
      ExpectBlockEnd();
    }
  }
  if (!end.tags.empty()) {
    Fail("Unexpected end of template: the tag '" + std::string(end.block) + "' is not closed, '" +
         std::string(end.tags.back()) + "' was expected");
  }
  --statement_depth_;
  return body;
}

std::unique_ptr<Stmt> Parser::ParsePrint() {
  auto statement = MakeStatement(StmtKind::kPrint);
  statement->expr = ParseTuple(/*with_conditional=*/true, /*explicit_parentheses=*/false);
  return statement;
}

std::unique_ptr<Stmt> Parser::ParseStatement() {
  if (Current().kind != TokenKind::kName) Fail("tag name expected");
  const std::string tag = Current().text;
  const Position position = Current().position;
  if (tag == "if") return ParseIf();
  if (tag == "for") return ParseFor();
  if (tag == "set") return ParseSet();
  if (tag == "macro") return ParseMacro();
  if (tag == "call") return ParseCallBlock();
  if (tag == "filter") return ParseFilterBlock();
  if (tag == "with") return ParseWith();
  if (tag == "block") return ParseNamedBlock();
  if (tag == "generation") return ParseGroup(tag);
  if (tag == "break" || tag == "continue") return ParseLoopControl();
  if (tag == "print") {
    Advance();
    return ParsePrint();
  }
  const bool is_end = tag.starts_with("end") || tag == "else" || tag == "elif";
  if (is_end) throw Error(ErrorKind::kSyntax, "unexpected tag '" + tag + "'", position);
  throw Error(ErrorKind::kUnsupported, "unknown or unsupported tag '" + tag + "'", position);
}

void Parser::FinishBlock(std::string_view end_tag) { ExpectKeyword(end_tag); }

std::unique_ptr<Stmt> Parser::ParseIf() {
  auto statement = MakeStatement(StmtKind::kIf);
  const EndTags end = {"if", {"elif", "else", "endif"}};
  Advance();
  ExprPtr condition = ParseTuple(/*with_conditional=*/false, /*explicit_parentheses=*/false);
  ExpectBlockEnd();
  while (true) {
    Body body = ParseBody(end);
    statement->branches.emplace_back(std::move(condition), std::move(body));
    if (SkipKeyword("elif")) {
      condition = ParseTuple(/*with_conditional=*/false, /*explicit_parentheses=*/false);
      ExpectBlockEnd();
      continue;
    }
    if (SkipKeyword("else")) {
      ExpectBlockEnd();
      Body other = ParseBody({"if", {"endif"}});
      statement->branches.emplace_back(nullptr, std::move(other));
    }
    FinishBlock("endif");
    return statement;
  }
}

std::unique_ptr<Stmt> Parser::ParseFor() {
  auto statement = MakeStatement(StmtKind::kFor);
  Advance();
  statement->target = ParseTarget(/*with_namespace=*/false);
  ExpectKeyword("in");
  statement->expr =
      ParseTuple(/*with_conditional=*/false, /*explicit_parentheses=*/false, "recursive");
  if (SkipKeyword("if")) statement->condition = ParseExpression();
  statement->recursive = SkipKeyword("recursive");
  ExpectBlockEnd();
  ++loop_depth_;
  statement->body = ParseBody({"for", {"else", "endfor"}});
  --loop_depth_;
  if (SkipKeyword("else")) {
    ExpectBlockEnd();
    statement->other_body = ParseBody({"for", {"endfor"}});
  }
  FinishBlock("endfor");
  return statement;
}

std::unique_ptr<Stmt> Parser::ParseSet() {
  auto statement = MakeStatement(StmtKind::kSet);
  Advance();
  statement->target = ParseTarget(/*with_namespace=*/true);
  if (SkipOperator("=")) {
    statement->expr = ParseTuple(/*with_conditional=*/true, /*explicit_parentheses=*/false);
    return statement;
  }
  statement->kind = StmtKind::kSetBlock;
  if (IsOperator("|")) statement->expr = ParseFilters(nullptr, /*first_without_pipe=*/false);
  ExpectBlockEnd();
  statement->body = ParseBody({"set", {"endset"}});
  FinishBlock("endset");
  return statement;
}

Target Parser::ParseOneTarget(bool with_namespace) {
  Target target;
  target.position = Current().position;
  if (SkipOperator("(")) {
    target = ParseTarget(with_namespace);
    ExpectOperator(")");
    return target;
  }
  const std::string name = ExpectName();
  if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
      name == "None") {
    throw Error(ErrorKind::kSyntax, "can't assign to '" + name + "'", target.position);
  }
  target.symbol = Intern(name);
  if (with_namespace && SkipOperator(".")) {
    target.attribute = ExpectName();
  } else {
    assigned_.insert(target.symbol);
  }
  return target;
}

Target Parser::ParseTarget(bool with_namespace) {
  if (++expression_depth_ > kMaxStatementDepth) Fail("targets nested too deeply");
  Target first = ParseOneTarget(with_namespace);
  if (IsOperator(",")) {
    Target tuple;
    tuple.is_tuple = true;
    tuple.position = first.position;
    tuple.elements.push_back(std::move(first));
    while (SkipOperator(",")) {
      if (Current().kind != TokenKind::kName && !IsOperator("(")) break;
      if (IsKeyword("in")) break;
      tuple.elements.push_back(ParseOneTarget(with_namespace));
    }
    first = std::move(tuple);
  }
  --expression_depth_;
  return first;
}

void Parser::ParseParameters(Signature& signature) {
  ExpectOperator("(");
  while (!IsOperator(")")) {
    if (!signature.parameters.empty()) ExpectOperator(",");
    const std::string name = ExpectName();
    signature.parameter_names.push_back(name);
    signature.parameters.push_back(Intern(name));
    assigned_.insert(signature.parameters.back());
    if (SkipOperator("=")) {
      signature.defaults.push_back(ParseExpression());
    } else if (!signature.defaults.empty()) {
      Fail("non-default argument follows default argument");
    }
  }
  ExpectOperator(")");
}

std::unique_ptr<Stmt> Parser::ParseMacro() {
  auto statement = MakeStatement(StmtKind::kMacro);
  Advance();
  statement->signature.text = ExpectName();
  statement->signature.name = Intern(statement->signature.text);
  assigned_.insert(statement->signature.name);
  signatures_.push_back(&statement->signature);
  ParseParameters(statement->signature);
  ExpectBlockEnd();
  const int loops = std::exchange(loop_depth_, 0);
  statement->body = ParseBody({"macro", {"endmacro"}});
  loop_depth_ = loops;
  signatures_.pop_back();
  FinishBlock("endmacro");
  return statement;
}

std::unique_ptr<Stmt> Parser::ParseCallBlock() {
  auto statement = MakeStatement(StmtKind::kCallBlock);
  Advance();
  statement->signature.text = "caller";
  if (IsOperator("(")) ParseParameters(statement->signature);
  statement->expr = ParseExpression();
  if (statement->expr->kind != ExprKind::kCall) Fail("expected call");
  ExpectBlockEnd();
  signatures_.push_back(&statement->signature);
  const int loops = std::exchange(loop_depth_, 0);
  statement->body = ParseBody({"call", {"endcall"}});
  loop_depth_ = loops;
  signatures_.pop_back();
  FinishBlock("endcall");
  return statement;
}

std::unique_ptr<Stmt> Parser::ParseFilterBlock() {
  auto statement = MakeStatement(StmtKind::kFilterBlock);
  Advance();
  statement->expr = ParseFilters(nullptr, /*first_without_pipe=*/true);
  ExpectBlockEnd();
  statement->body = ParseBody({"filter", {"endfilter"}});
  FinishBlock("endfilter");
  return statement;
}

std::unique_ptr<Stmt> Parser::ParseWith() {
  auto statement = MakeStatement(StmtKind::kWith);
  Advance();
  while (Current().kind != TokenKind::kBlockEnd) {
    if (!statement->assignments.empty()) ExpectOperator(",");
    Target target = ParseOneTarget(/*with_namespace=*/false);
    ExpectOperator("=");
    statement->assignments.emplace_back(std::move(target), ParseExpression());
  }
  ExpectBlockEnd();
  statement->body = ParseBody({"with", {"endwith"}});
  FinishBlock("endwith");
  return statement;
}

std::unique_ptr<Stmt> Parser::ParseNamedBlock() {
  auto statement = MakeStatement(StmtKind::kScope);
  Advance();
  const std::string name = ExpectName();
  SkipKeyword("scoped");
  SkipKeyword("required");
  ExpectBlockEnd();
  statement->body = ParseBody({"block", {"endblock"}});
  FinishBlock("endblock");
  SkipKeyword(name);
  return statement;
}

std::unique_ptr<Stmt> Parser::ParseGroup(std::string_view tag) {
  auto statement = MakeStatement(StmtKind::kGroup);
  Advance();
  ExpectBlockEnd();
  const std::string end = "end" + std::string(tag);
  statement->body = ParseBody({tag, {end}});
  FinishBlock(end);
  return statement;
}

std::unique_ptr<Stmt> Parser::ParseLoopControl() {
  auto statement = MakeStatement(IsKeyword("break") ? StmtKind::kBreak : StmtKind::kContinue);
  if (loop_depth_ == 0) Fail("'" + Current().text + "' outside a loop");
  Advance();
  return statement;
}

Ast Parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) throw Error(ErrorKind::kSyntax, "template too long");
  return Parser(Tokenize(source)).Run();
}

}  // namespace baton::text::jinja
