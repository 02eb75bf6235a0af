#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "text/tokenizer/character_classes.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

std::uint64_t EdgeKey(std::uint32_t node, char byte) {
  return (static_cast<std::uint64_t>(node) << 8) | static_cast<unsigned char>(byte);
}

std::size_t PreviousStart(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool TouchesWord(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && IsWord(ReadUtf8Unit(text.substr(PreviousStart(text, begin))).code_point)) {
    return true;
  }
  return end < text.size() && IsWord(ReadUtf8Unit(text.substr(end)).code_point);
}

std::size_t SkipSpacesBack(std::string_view text, std::size_t at, std::size_t limit) {
  while (at > limit) {
    const std::size_t previous = PreviousStart(text, at);
    if (!IsWhiteSpace(ReadUtf8Unit(text.substr(previous)).code_point)) break;
    at = previous;
  }
  return std::max(at, limit);
}

std::size_t SkipSpaces(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Unit unit = ReadUtf8Unit(text.substr(at));
    if (!IsWhiteSpace(unit.code_point)) break;
    at += unit.num_bytes;
  }
  return at;
}

}  // namespace

void AddedTokenMatcher::Build(std::vector<AddedToken> tokens,
                              const std::vector<std::string>& patterns) {
  tokens_ = std::move(tokens);
  token_at_node_.assign(1, -1);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (patterns[i].empty()) continue;
    starts_token_[static_cast<unsigned char>(patterns[i][0])] = true;
    std::uint32_t node = 0;
    for (const char byte : patterns[i]) {
      const auto [edge, is_new] = edges_.try_emplace(
          EdgeKey(node, byte), static_cast<std::uint32_t>(token_at_node_.size()));
      node = edge->second;
      if (is_new) token_at_node_.push_back(-1);
    }
    token_at_node_[node] = static_cast<std::int32_t>(i);
  }
}

AddedTokenMatcher::Candidate AddedTokenMatcher::LongestAt(std::string_view text,
                                                          std::size_t at) const {
  Candidate longest;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(EdgeKey(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (token_at_node_[node] >= 0) longest = {i + 1 - at, &tokens_[token_at_node_[node]]};
  }
  return longest;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::Find(std::string_view text,
                                                             bool parse_special) const {
  std::vector<Part> parts;
  std::size_t done = 0;
  std::size_t at = 0;
  std::size_t spaces_end = 0;  // how far rstrip has looked: no white space is looked at twice
  while (at < text.size()) {
    if (!starts_token_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const Candidate found = LongestAt(text, at);
    if (found.token == nullptr) {
      ++at;
      continue;
    }
    // Each match uses its text up, whether it is taken or not, and nothing more: white space that
    // rstrip takes along may begin the next match. So it is in the reference.
    std::size_t begin = at;
    std::size_t end = at + found.num_bytes;
    at = end;
    if (found.token->special && !parse_special) continue;
    if (found.token->single_word && TouchesWord(text, begin, end)) continue;
    if (found.token->lstrip) begin = SkipSpacesBack(text, begin, done);
    if (found.token->rstrip) {
      if (end > spaces_end) spaces_end = SkipSpaces(text, end);
      end = spaces_end;
    }
    if (begin > done) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, found.token->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
  return parts;
}

}  // namespace baton::text
