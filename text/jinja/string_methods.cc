// The methods of Python's str.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_format.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

constexpr auto kNpos = std::string_view::npos;

Value Upper(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return interpreter.NewString(ToUpper(self.str()));
}
Value Lower(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return interpreter.NewString(ToLower(self.str()));
}
Value Fold(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return interpreter.NewString(CaseFold(self.str()));
}
Value Capitalize(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return interpreter.CallBuiltin(*FindFilter("capitalize"), self, {});
}

// str.title: a word is a run of cased letters.
Value Title(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  std::string out;
  bool in_word = false;
  for (const char32_t c : ToCodePoints(self.str())) {
    std::string letter;
    AppendUtf8(c, letter);
    out += in_word ? ToLower(letter) : ToTitleCharacter(c);
    in_word = IsCased(c);
  }
  return interpreter.NewString(std::move(out));
}

Value SwapCase(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  std::string out;
  for (const char32_t c : ToCodePoints(self.str())) {
    std::string letter;
    AppendUtf8(c, letter);
    out += IsUpper(c) ? ToLower(letter) : IsLower(c) ? ToUpper(letter) : letter;
  }
  return interpreter.NewString(std::move(out));
}

template <Side kSide>
Value StripMethod(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  if (!arguments.Has(0) || arguments[0].is_none()) {
    return interpreter.NewString(std::string(Strip(self.str(), kSide)));
  }
  const std::u32string chars = ToCodePoints(StringArgument(arguments[0], "strip's argument"));
  return interpreter.NewString(std::string(Strip(self.str(), kSide, &chars)));
}

// startswith and endswith, with one text or a tuple of them, and bounds.
template <bool kStart>
Value Affix(Interpreter&, const Value& self, const BoundArguments& arguments) {
  std::string text = self.str();
  if (arguments.Has(1) || arguments.Has(2)) {
    const std::u32string all = ToCodePoints(text);
    const auto size = static_cast<std::int64_t>(all.size());
    const auto place = [&](std::size_t i, std::int64_t fallback) {
      if (!arguments.Has(i) || arguments[i].is_none()) return fallback;
      const std::int64_t index = IntArgument(arguments[i], "slice indices");
      return std::clamp<std::int64_t>(index < 0 ? index + size : index, 0, size);
    };
    const std::int64_t begin = place(1, 0);
    const std::int64_t end = place(2, size);
    const bool past_end = arguments.Has(1) && arguments[1].is_int() && arguments[1].as_int() > size;
    if (begin > end || past_end) return Value::Bool(false);
    text = FromCodePoints(std::u32string_view(all).substr(static_cast<std::size_t>(begin),
                                                          static_cast<std::size_t>(end - begin)));
  }
  const auto matches = [&](const Value& affix) {
    const std::string& part = StringArgument(affix, kStart ? "startswith" : "endswith");
    return kStart ? text.starts_with(part) : text.ends_with(part);
  };
  if (!arguments[0].is_tuple()) return Value::Bool(matches(arguments[0]));
  const List& parts = arguments[0].items();
  return Value::Bool(std::any_of(parts.begin(), parts.end(), matches));
}

template <bool kPrefix>
Value RemoveAffix(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::string& affix = StringArgument(arguments[0], "the affix");
  std::string_view text = self.str();
  if (kPrefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kPrefix && !affix.empty() && text.ends_with(affix)) text.remove_suffix(affix.size());
  return interpreter.NewString(std::string(text));
}

Value Replace(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::string& text = self.str();
  const std::string& from = StringArgument(arguments[0], "replace() argument 1");
  const std::string& to = StringArgument(arguments[1], "replace() argument 2");
  std::int64_t left = arguments.Has(2) ? IntArgument(arguments[2], "count") : -1;
  std::string out;
  std::size_t at = 0;
  if (from.empty()) {  // goes before every character and at the end
    while (left != 0) {
      out += to;
      interpreter.CheckAllocation(out.size());
      --left;
      if (at == text.size()) return interpreter.NewString(std::move(out));
      const std::size_t size = ReadUtf8Unit(std::string_view(text).substr(at)).num_bytes;
      out += text.substr(at, size);
      at += size;
    }
  } else {
    for (std::size_t found = text.find(from); left != 0 && found != kNpos;
         found = text.find(from, at)) {
      out += text.substr(at, found - at);
      out += to;
      interpreter.CheckAllocation(out.size());
      at = found + from.size();
      --left;
    }
  }
  out += text.substr(at);
  return interpreter.NewString(std::move(out));
}

// The words of `text`, white space around and between them gone; at most `max_splits` cuts (all
// when negative), from the left or the right.
std::vector<std::string_view> SplitSpaces(std::string_view text, std::int64_t max_splits,
                                          bool from_right) {
  std::vector<std::string_view> words;
  text = Strip(text, from_right ? Side::kRight : Side::kLeft);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<std::int64_t>(words.size()) == max_splits) {
      words.push_back(Strip(text, from_right ? Side::kLeft : Side::kRight));
      if (words.back().empty()) words.pop_back();
      break;
    }
    std::size_t size = 0;  // of the word at this end
    while (size < text.size()) {
      std::size_t at = size;
      if (from_right) {
        at = text.size() - size - 1;
        while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
      }
      const Utf8Unit unit = ReadUtf8Unit(text.substr(at));
      if (IsSpace(unit.code_point)) break;
      size += unit.num_bytes;
    }
    if (from_right) {
      words.push_back(text.substr(text.size() - size));
      text = Strip(text.substr(0, text.size() - size), Side::kRight);
    } else {
      words.push_back(text.substr(0, size));
      text = Strip(text.substr(size), Side::kLeft);
    }
  }
  if (from_right) std::reverse(words.begin(), words.end());
  return words;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      std::int64_t max_splits, bool from_right) {
  std::vector<std::string_view> parts;
  while (max_splits < 0 || static_cast<std::int64_t>(parts.size()) < max_splits) {
    const std::size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == kNpos) break;
    if (from_right) {
      parts.push_back(text.substr(found + separator.size()));
      text = text.substr(0, found);
    } else {
      parts.push_back(text.substr(0, found));
      text.remove_prefix(found + separator.size());
    }
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value NewStringList(Interpreter& interpreter, const std::vector<std::string_view>& parts) {
  List items;
  items.reserve(parts.size());
  for (const std::string_view part : parts)
    items.push_back(interpreter.NewString(std::string(part)));
  return interpreter.NewList(std::move(items));
}

template <bool kFromRight>
Value Split(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::int64_t max_splits = arguments.Has(1) ? IntArgument(arguments[1], "maxsplit") : -1;
  if (!arguments.Has(0) || arguments[0].is_none()) {
    return NewStringList(interpreter, SplitSpaces(self.str(), max_splits, kFromRight));
  }
  const std::string& separator = StringArgument(arguments[0], "the separator");
  if (separator.empty()) FailRuntime("empty separator");
  return NewStringList(interpreter, SplitAt(self.str(), separator, max_splits, kFromRight));
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

Value SplitLines(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const bool keep_ends = arguments.Has(0) && IsTruthy(arguments[0]);
  const std::string_view text = self.str();
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = ReadUtf8Unit(text.substr(at));
    std::size_t next = at + unit.num_bytes;
    if (IsLineBreak(unit.code_point)) {
      if (unit.code_point == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return NewStringList(interpreter, lines);
}

template <bool kFromRight>
Value Partition(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::string_view text = self.str();
  const std::string& separator = StringArgument(arguments[0], "the separator");
  if (separator.empty()) FailRuntime("empty separator");
  const std::size_t found = kFromRight ? text.rfind(separator) : text.find(separator);
  const auto make = [&](std::string_view part) { return interpreter.NewString(std::string(part)); };
  if (found == kNpos) {
    return kFromRight ? interpreter.NewTuple({make(""), make(""), self})
                      : interpreter.NewTuple({self, make(""), make("")});
  }
  return interpreter.NewTuple(
      {make(text.substr(0, found)), make(separator), make(text.substr(found + separator.size()))});
}

Value Join(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  std::string out;
  bool first = true;
  for (const Value& item : interpreter.Iterate(arguments[0])) {
    if (!first) out += self.str();
    first = false;
    out += StringArgument(item, "sequence item");
    interpreter.CheckAllocation(out.size());
  }
  return interpreter.NewString(std::move(out));
}

// The place of the argument, in characters, or -1.
template <bool kFromRight>
std::int64_t FindIn(const Value& self, const BoundArguments& arguments) {
  const std::u32string text = ToCodePoints(self.str());
  const std::u32string part = ToCodePoints(StringArgument(arguments[0], "the argument"));
  const auto size = static_cast<std::int64_t>(text.size());
  const auto place = [&](std::size_t i, std::int64_t fallback) {
    if (!arguments.Has(i) || arguments[i].is_none()) return fallback;
    const std::int64_t index = IntArgument(arguments[i], "slice indices");
    return std::max<std::int64_t>(index < 0 ? index + size : index, 0);
  };
  const std::int64_t begin = place(1, 0);
  const std::int64_t end = std::min(place(2, size), size);
  if (begin > end) return -1;
  const auto range = std::u32string_view(text).substr(static_cast<std::size_t>(begin),
                                                      static_cast<std::size_t>(end - begin));
  const std::size_t found = kFromRight ? range.rfind(part) : range.find(part);
  return found == std::u32string_view::npos ? -1 : begin + static_cast<std::int64_t>(found);
}

template <bool kFromRight>
Value Find(Interpreter&, const Value& self, const BoundArguments& arguments) {
  return Value::Int(FindIn<kFromRight>(self, arguments));
}
template <bool kFromRight>
Value Index(Interpreter&, const Value& self, const BoundArguments& arguments) {
  const std::int64_t found = FindIn<kFromRight>(self, arguments);
  if (found < 0) FailRuntime("substring not found");
  return Value::Int(found);
}

Value Count(Interpreter&, const Value& self, const BoundArguments& arguments) {
  const std::string& text = self.str();
  const std::string& part = StringArgument(arguments[0], "the argument");
  if (part.empty()) return Value::Int(static_cast<std::int64_t>(CountCodePoints(text)) + 1);
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != kNpos; at = text.find(part, at + part.size()))
    ++count;
  return Value::Int(count);
}

enum class Align { kLeft, kRight, kCenter };

template <Align kAlign>
Value Justify(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::int64_t width = IntArgument(arguments[0], "width");
  const std::string fill = arguments.Has(1) ? StringArgument(arguments[1], "fillchar") : " ";
  if (CountCodePoints(fill) != 1)
    FailRuntime("The fill character must be exactly one character long");
  const auto length = static_cast<std::int64_t>(CountCodePoints(self.str()));
  const std::int64_t padding = std::max<std::int64_t>(0, width - length);
  interpreter.CheckAllocation(static_cast<std::size_t>(padding) > (SIZE_MAX >> 4)
                                  ? SIZE_MAX
                                  : static_cast<std::size_t>(padding) * fill.size());
  std::int64_t left = 0;
  if (kAlign == Align::kRight) left = padding;
  if (kAlign == Align::kCenter) left = padding / 2 + (padding & width & 1);  // as CPython does
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += self.str();
  for (std::int64_t i = left; i < padding; ++i) out += fill;
  return interpreter.NewString(std::move(out));
}

Value ZeroFill(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::int64_t width = IntArgument(arguments[0], "width");
  const auto length = static_cast<std::int64_t>(CountCodePoints(self.str()));
  const auto padding = static_cast<std::size_t>(std::max<std::int64_t>(0, width - length));
  interpreter.CheckAllocation(padding);
  std::string out = self.str();
  const bool sign = !out.empty() && (out[0] == '-' || out[0] == '+');
  out.insert(sign ? 1 : 0, padding, '0');
  return interpreter.NewString(std::move(out));
}

Value ExpandTabs(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::int64_t tab = arguments.Has(0) ? IntArgument(arguments[0], "tabsize") : 8;
  std::string out;
  std::int64_t column = 0;
  for (const char c : self.str()) {
    if (c == '\t') {
      const std::int64_t spaces = tab > 0 ? tab - column % tab : 0;
      interpreter.CheckAllocation(out.size() + static_cast<std::size_t>(spaces));
      out.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    out += c;
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++column;
    if (c == '\n' || c == '\r') column = 0;
  }
  return interpreter.NewString(std::move(out));
}

Value FormatMethod(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  return interpreter.NewString(FormatBraces(interpreter, self.str(), arguments.rest()));
}

bool IsAlnum(char32_t c) { return IsAlpha(c) || IsDecimal(c) || IsDigit(c) || IsNumeric(c); }

// isalpha and so on: not empty, and every character is.
template <bool (*kPredicate)(char32_t)>
Value AllAre(Interpreter&, const Value& self, const BoundArguments&) {
  const std::u32string text = ToCodePoints(self.str());
  return Value::Bool(!text.empty() && std::all_of(text.begin(), text.end(), kPredicate));
}

// isprintable and isascii are true of empty text, too.
bool IsAscii(char32_t c) { return c < 0x80; }
template <bool (*kPredicate)(char32_t)>
Value AllAreOrEmpty(Interpreter&, const Value& self, const BoundArguments&) {
  const std::u32string text = ToCodePoints(self.str());
  return Value::Bool(std::all_of(text.begin(), text.end(), kPredicate));
}

Value IsIdentifier(Interpreter&, const Value& self, const BoundArguments&) {
  const std::u32string text = ToCodePoints(self.str());
  const auto part = [](char32_t c) { return c == '_' || IsAlnum(c); };
  const bool starts = !text.empty() && (text[0] == '_' || IsAlpha(text[0]));
  return Value::Bool(starts && std::all_of(text.begin(), text.end(), part));
}

Value IsTitle(Interpreter&, const Value& self, const BoundArguments&) {
  bool any = false;
  bool in_word = false;
  for (const char32_t c : ToCodePoints(self.str())) {
    if (IsCased(c) && IsLower(c) != in_word) return Value::Bool(false);
    any |= IsCased(c);
    in_word = IsCased(c);
  }
  return Value::Bool(any);
}

Value CaseTest(Interpreter& interpreter, const Value& self, const char* test) {
  return interpreter.CallBuiltin(*FindTest(test), self, {});
}
Value IsLowerMethod(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return CaseTest(interpreter, self, "lower");
}
Value IsUpperMethod(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return CaseTest(interpreter, self, "upper");
}

const std::vector<Builtin>& Table() {
  static const std::vector<Builtin> table = {
      {"strip", 0, {"chars"}, false, StripMethod<Side::kBoth>},
      {"lstrip", 0, {"chars"}, false, StripMethod<Side::kLeft>},
      {"rstrip", 0, {"chars"}, false, StripMethod<Side::kRight>},
      {"split", 0, {"sep", "maxsplit"}, false, Split<false>},
      {"rsplit", 0, {"sep", "maxsplit"}, false, Split<true>},
      {"splitlines", 0, {"keepends"}, false, SplitLines},
      {"startswith", 1, {"prefix", "start", "end"}, false, Affix<true>},
      {"endswith", 1, {"suffix", "start", "end"}, false, Affix<false>},
      {"replace", 2, {"old", "new", "count"}, false, Replace},
      {"upper", 0, {}, false, Upper},
      {"lower", 0, {}, false, Lower},
      {"casefold", 0, {}, false, Fold},
      {"capitalize", 0, {}, false, Capitalize},
      {"title", 0, {}, false, Title},
      {"swapcase", 0, {}, false, SwapCase},
      {"join", 1, {"iterable"}, false, Join},
      {"find", 1, {"sub", "start", "end"}, false, Find<false>},
      {"rfind", 1, {"sub", "start", "end"}, false, Find<true>},
      {"index", 1, {"sub", "start", "end"}, false, Index<false>},
      {"rindex", 1, {"sub", "start", "end"}, false, Index<true>},
      {"count", 1, {"sub"}, false, Count},
      {"partition", 1, {"sep"}, false, Partition<false>},
      {"rpartition", 1, {"sep"}, false, Partition<true>},
      {"removeprefix", 1, {"prefix"}, false, RemoveAffix<true>},
      {"removesuffix", 1, {"suffix"}, false, RemoveAffix<false>},
      {"ljust", 1, {"width", "fillchar"}, false, Justify<Align::kLeft>},
      {"rjust", 1, {"width", "fillchar"}, false, Justify<Align::kRight>},
      {"center", 1, {"width", "fillchar"}, false, Justify<Align::kCenter>},
      {"zfill", 1, {"width"}, false, ZeroFill},
      {"expandtabs", 0, {"tabsize"}, false, ExpandTabs},
      {"format", 0, {}, true, FormatMethod},
      {"isalpha", 0, {}, false, AllAre<IsAlpha>},
      {"isalnum", 0, {}, false, AllAre<IsAlnum>},
      {"isdecimal", 0, {}, false, AllAre<IsDecimal>},
      {"isdigit", 0, {}, false, AllAre<IsDigit>},
      {"isnumeric", 0, {}, false, AllAre<IsNumeric>},
      {"isspace", 0, {}, false, AllAre<IsSpace>},
      {"isprintable", 0, {}, false, AllAreOrEmpty<IsPrintable>},
      {"isascii", 0, {}, false, AllAreOrEmpty<IsAscii>},
      {"isidentifier", 0, {}, false, IsIdentifier},
      {"istitle", 0, {}, false, IsTitle},
      {"islower", 0, {}, false, IsLowerMethod},
      {"isupper", 0, {}, false, IsUpperMethod},
  };
  return table;
}

}  // namespace

const Builtin* FindStringMethod(std::string_view name) {
  for (const Builtin& builtin : Table()) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace baton::text::jinja
