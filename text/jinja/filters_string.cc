// Filters of text. Other values are taken as what they print.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_format.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

std::string TextOf(Interpreter& interpreter, const Value& value) {
  return value.is_string() ? value.str() : interpreter.Print(value);
}

Value Upper(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return interpreter.NewString(ToUpper(TextOf(interpreter, self)));
}
Value Lower(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  return interpreter.NewString(ToLower(TextOf(interpreter, self)));
}

Value Capitalize(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  const std::u32string text = ToCodePoints(TextOf(interpreter, self));
  if (text.empty()) return interpreter.NewString("");
  return interpreter.NewString(ToTitleCharacter(text[0]) +
                               ToLower(FromCodePoints(std::u32string_view(text).substr(1))));
}

// A word begins after white space, a dash or an opening bracket.
Value Title(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  const std::u32string text = ToCodePoints(TextOf(interpreter, self));
  std::string out;
  std::string word;
  const auto flush = [&] {
    out += ToLower(word);
    word.clear();
  };
  bool at_begin = true;
  for (const char32_t c : text) {
    const bool separator =
        IsSpace(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
    if (separator) {
      flush();
      AppendUtf8(c, out);
    } else if (at_begin) {
      std::string letter;
      AppendUtf8(c, letter);
      out += ToUpper(letter);
    } else {
      AppendUtf8(c, word);
    }
    at_begin = separator;
  }
  flush();
  return interpreter.NewString(std::move(out));
}

Value Trim(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::string text = TextOf(interpreter, self);
  if (!arguments.Has(0) || arguments[0].is_none()) {
    return interpreter.NewString(std::string(Strip(text, Side::kBoth)));
  }
  const std::u32string chars = ToCodePoints(StringArgument(arguments[0], "chars"));
  return interpreter.NewString(std::string(Strip(text, Side::kBoth, &chars)));
}

Value Replace(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const Value text = interpreter.NewString(TextOf(interpreter, self));
  CallArguments call;
  call.positional = {interpreter.NewString(TextOf(interpreter, arguments[0])),
                     interpreter.NewString(TextOf(interpreter, arguments[1]))};
  if (arguments.Has(2) && !arguments[2].is_none()) call.positional.push_back(arguments[2]);
  return interpreter.CallBuiltin(*FindStringMethod("replace"), text, call);
}

Value Indent(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const std::string& text = StringArgument(self, "what is indented");
  std::string indention;
  if (arguments.Has(0) && arguments[0].is_string()) {
    indention = arguments[0].str();
  } else {
    const std::int64_t width = arguments.Has(0) ? IntArgument(arguments[0], "width") : 4;
    interpreter.CheckAllocation(static_cast<std::size_t>(std::max<std::int64_t>(0, width)));
    indention = std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' ');
  }
  const bool first = arguments.Has(1) && IsTruthy(arguments[1]);
  const bool blank = arguments.Has(2) && IsTruthy(arguments[2]);
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  std::size_t more = 0;
  if (__builtin_mul_overflow(lines, indention.size(), &more)) more = SIZE_MAX / 2;
  interpreter.CheckAllocation(text.size() + more);
  std::string out;
  std::string_view rest = text;
  for (bool is_first = true;; is_first = false) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (is_first ? first : (blank || !line.empty())) out += indention;
    out += line;
    if (end == std::string_view::npos) break;
    out += '\n';
    rest.remove_prefix(end + 1);
  }
  return interpreter.NewString(std::move(out));
}

Value Center(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  CallArguments call;
  call.positional = {arguments.Or(0, Value::Int(80))};
  return interpreter.CallBuiltin(*FindStringMethod("center"),
                                 interpreter.NewString(TextOf(interpreter, self)), call);
}

Value Escape(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  std::string out;
  for (const char c : TextOf(interpreter, self)) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (c == '"') {
      out += "&#34;";
    } else {
      out += c;
    }
  }
  return interpreter.NewString(std::move(out));
}

Value Format(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  const CallArguments& rest = arguments.rest();
  if (!rest.positional.empty() && !rest.named.empty()) {
    FailRuntime("can't handle positional and keyword arguments at the same time");
  }
  Value values;
  if (rest.named.empty()) {
    values = interpreter.NewTuple(rest.positional);
  } else {
    Dict dict;
    for (const auto& [name, value] : rest.named) dict.Set(name, value);
    values = interpreter.NewDict(std::move(dict));
  }
  return interpreter.NewString(FormatPercent(interpreter, TextOf(interpreter, self), values));
}

Value WordCount(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  std::int64_t count = 0;
  bool in_word = false;
  for (const char32_t c : ToCodePoints(TextOf(interpreter, self))) {
    const bool word = IsAlpha(c) || IsNumeric(c) || c == '_';
    count += word && !in_word;
    in_word = word;
  }
  return Value::Int(count);
}

Value Truncate(Interpreter& interpreter, const Value& self, const BoundArguments& arguments) {
  if (self.is_undefined()) return self;
  const std::u32string text = ToCodePoints(StringArgument(self, "what is truncated"));
  const std::int64_t length = arguments.Has(0) ? IntArgument(arguments[0], "length") : 255;
  const bool kill_words = arguments.Has(1) && IsTruthy(arguments[1]);
  const std::u32string end =
      ToCodePoints(arguments.Has(2) ? StringArgument(arguments[2], "end") : "...");
  const std::int64_t leeway =
      arguments.Has(3) && !arguments[3].is_none() ? IntArgument(arguments[3], "leeway") : 5;
  if (length < static_cast<std::int64_t>(end.size())) {
    FailRuntime("truncate: the length is shorter than the end");
  }
  if (leeway < 0) FailRuntime("truncate: leeway must not be negative");
  if (static_cast<std::int64_t>(text.size()) - leeway <= length) {
    return interpreter.NewString(FromCodePoints(text));
  }
  std::u32string kept = text.substr(0, static_cast<std::size_t>(length) - end.size());
  if (!kill_words) kept = kept.substr(0, kept.rfind(U' '));
  return interpreter.NewString(FromCodePoints(kept + end));
}

void AppendUrlQuoted(std::string_view text, bool for_query, std::string& out) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  constexpr std::string_view kSafe = "_.-~";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || kSafe.find(c) != std::string_view::npos || (c == '/' && !for_query)) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
}

Value UrlEncode(Interpreter& interpreter, const Value& self, const BoundArguments&) {
  std::string out;
  if (!self.is_dict() && (self.is_string() || !self.is_sequence())) {
    AppendUrlQuoted(TextOf(interpreter, self), false, out);
    return interpreter.NewString(std::move(out));
  }
  List pairs;
  if (self.is_dict()) {
    for (const auto& [key, value] : self.dict().items()) {
      pairs.push_back(interpreter.NewTuple({key, value}));
    }
  } else {
    pairs = interpreter.Iterate(self);
  }
  for (const Value& pair : pairs) {
    const List entry = interpreter.Iterate(pair);
    if (entry.size() != 2) FailRuntime("urlencode needs pairs");
    if (!out.empty()) out += '&';
    AppendUrlQuoted(TextOf(interpreter, entry[0]), true, out);
    out += '=';
    AppendUrlQuoted(TextOf(interpreter, entry[1]), true, out);
  }
  return interpreter.NewString(std::move(out));
}

const std::vector<Builtin>& Table() {
  static const std::vector<Builtin> table = {
      {"upper", 0, {}, false, Upper},
      {"lower", 0, {}, false, Lower},
      {"capitalize", 0, {}, false, Capitalize},
      {"title", 0, {}, false, Title},
      {"trim", 0, {"chars"}, false, Trim},
      {"replace", 2, {"old", "new", "count"}, false, Replace},
      {"indent", 0, {"width", "first", "blank"}, false, Indent},
      {"center", 0, {"width"}, false, Center},
      {"escape", 0, {}, false, Escape},
      {"e", 0, {}, false, Escape},
      {"forceescape", 0, {}, false, Escape},
      {"format", 0, {}, true, Format},
      {"wordcount", 0, {}, false, WordCount},
      {"truncate", 0, {"length", "killwords", "end", "leeway"}, false, Truncate},
      {"urlencode", 0, {}, false, UrlEncode},
  };
  return table;
}

}  // namespace

std::span<const Builtin> StringFilters() { return Table(); }

}  // namespace baton::text::jinja
