#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace baton::text::jinja {

// A recursive-descent parser, rule by rule after Jinja's grammar; expressions lie in
// parser_expressions.cc, statements in parser_statements.cc. Used once, by Parse.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Ast Run();

 private:
  // Where a list of statements ends: one of `tags`, all of which belong to the tag `block`.
  struct EndTags {
    std::string_view block;
    std::vector<std::string_view> tags;
  };

  // Tokens.
  const Token& Current() const { return tokens_[at_]; }
  const Token& Next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void Advance() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool IsOperator(std::string_view op) const;
  bool IsKeyword(std::string_view name) const;
  bool SkipOperator(std::string_view op);
  bool SkipKeyword(std::string_view name);
  void ExpectOperator(std::string_view op);
  void ExpectKeyword(std::string_view name);
  void ExpectBlockEnd();
  std::string ExpectName();
  [[noreturn]] void Fail(std::string message) const;
  [[noreturn]] void FailUnexpected() const;

  // Names.
  Symbol Intern(std::string_view name);
  void CheckCalledNames() const;
  void CheckNamedBuiltin(const Expr& filter) const;

  // Expressions, from the loosest to the tightest.
  ExprPtr ParseExpression() { return ParseConditional(); }
  ExprPtr ParseConditional();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter);
  ExprPtr ParsePrimary();
  ExprPtr ParseNameOrConstant();
  ExprPtr ParseList();
  ExprPtr ParseDict();
  ExprPtr ParseTuple(bool with_conditional, bool explicit_parentheses,
                     std::string_view end_keyword = {});
  ExprPtr ParsePostfix(ExprPtr expr);
  ExprPtr ParseAttribute(ExprPtr expr);
  ExprPtr ParseSubscript(ExprPtr expr);
  ExprPtr ParseSubscriptItem();
  ExprPtr ParseFiltersAndTests(ExprPtr expr);
  ExprPtr ParseFilters(ExprPtr expr, bool first_without_pipe);
  ExprPtr ParseTest(ExprPtr expr);
  std::unique_ptr<Arguments> ParseArguments();
  void ParseArgument(Arguments& arguments);
  ExprPtr Make(ExprKind kind) const;
  ExprPtr MakeBinary(Operator op, ExprPtr left, ExprPtr right, Position position) const;
  ExprPtr Finish(ExprPtr expr) const;  // sets and bounds the depth

  // Statements.
  Body ParseBody(const EndTags& end);
  std::unique_ptr<Stmt> ParseStatement();
  std::unique_ptr<Stmt> ParsePrint();
  std::unique_ptr<Stmt> ParseIf();
  std::unique_ptr<Stmt> ParseFor();
  std::unique_ptr<Stmt> ParseSet();
  std::unique_ptr<Stmt> ParseMacro();
  std::unique_ptr<Stmt> ParseCallBlock();
  std::unique_ptr<Stmt> ParseFilterBlock();
  std::unique_ptr<Stmt> ParseWith();
  std::unique_ptr<Stmt> ParseNamedBlock();
  std::unique_ptr<Stmt> ParseGroup(std::string_view tag);
  std::unique_ptr<Stmt> ParseLoopControl();
  Target ParseTarget(bool with_namespace);
  Target ParseOneTarget(bool with_namespace);
  void ParseParameters(Signature& signature);
  void FinishBlock(std::string_view end_tag);
  std::unique_ptr<Stmt> MakeStatement(StmtKind kind) const;

  const std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int expression_depth_ = 0;
  int statement_depth_ = 0;
  int loop_depth_ = 0;
  std::vector<Signature*> signatures_;  // of the macros around, innermost last
  std::vector<std::string> names_;
  std::unordered_map<std::string, Symbol> symbols_;
  std::unordered_set<Symbol> assigned_;        // anywhere in the template
  std::unordered_set<Symbol> tested_defined_;  // by "is defined"
  std::vector<std::pair<Symbol, Position>> called_;
};

}  // namespace baton::text::jinja
