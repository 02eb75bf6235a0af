#include "text/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "text/jinja/error.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_format.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

constexpr std::size_t kMaxJsonDepth = 128;

// Builds a Value from nlohmann's events, which give numbers as they are written.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) {
      return Add(Value::BigInt(std::to_string(value)));
    }
    return Add(Value::Int(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& token) override {
    const bool integer = token.find_first_of(".eE") == std::string::npos;
    return Add(integer ? Value::BigInt(token) : Value::Float(value));
  }
  bool string(string_t& value) override { return Add(Value::String(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(/*is_object=*/true); }
  bool start_array(std::size_t) override { return Open(/*is_object=*/false); }
  bool key(string_t& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() override {
    Value dict = Value::MakeDict(std::move(open_.back().dict));
    open_.pop_back();
    return Add(std::move(dict));
  }
  bool end_array() override {
    Value list = Value::MakeList(std::move(open_.back().items));
    open_.pop_back();
    return Add(std::move(list));
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    error_ = e.what();
    return false;
  }

  const std::string& error() const { return error_; }
  Value Take() { return std::move(result_); }

 private:
  struct Container {
    bool is_object = false;
    List items;
    Dict dict;
    std::string key;
  };

  bool Open(bool is_object) {
    if (open_.size() == kMaxJsonDepth) {
      error_ = absl::StrCat("nested too deeply: limit ", kMaxJsonDepth);
      return false;
    }
    open_.emplace_back().is_object = is_object;
    return true;
  }

  bool Add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().dict.Set(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Container> open_;
  Value result_;
  std::string error_;
};

class JsonWriter {
 public:
  JsonWriter(const JsonFormat& format, std::size_t max_bytes)
      : format_(format), max_bytes_(max_bytes) {
    item_separator_ =
        format.item_separator.empty() ? (format.has_indent ? "," : ", ") : format.item_separator;
    key_separator_ = format.key_separator.empty() ? ": " : format.key_separator;
  }

  void Write(const Value& value, int level) {
    CheckSize();
    switch (value.kind()) {
      case Value::Kind::kString:
        WriteString(value.str());
        break;
      case Value::Kind::kSequence:
        if (!value.is_list() && !value.is_tuple()) FailType(value);
        WriteList(value.items(), level);
        break;
      case Value::Kind::kDict:
        WriteDict(value.dict(), level);
        break;
      case Value::Kind::kUndefined:
      case Value::Kind::kObject:
        FailType(value);
      default:
        out_ += Scalar(value);
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  [[noreturn]] static void FailType(const Value& value) {
    const std::string_view name = TypeName(value);
    FailRuntime("Object of type " + std::string(name) + " is not JSON serializable");
  }

  static std::string Scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.as_bool() ? "true" : "false";
    if (!value.is_float()) return ToString(value);
    const double real = value.as_float();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(real);
  }

  void WriteString(std::string_view text) {
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Unit unit = ReadUtf8Unit(text.substr(at));
      WriteCharacter(unit.code_point, text.substr(at, unit.num_bytes));
      at += unit.num_bytes;
    }
    out_ += '"';
  }

  void WriteCharacter(char32_t c, std::string_view bytes) {
    constexpr std::string_view kNamed = "\"\\\n\r\t\b\f";
    constexpr std::string_view kNames = "\"\\nrtbf";
    const std::size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : std::string_view::npos;
    if (named != std::string_view::npos) {
      out_ += '\\';
      out_ += kNames[named];
    } else if (c < 0x20 || (format_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
      WriteUnicodeEscape(c);
    } else if (format_.ensure_ascii && c >= 0x10000) {
      WriteUnicodeEscape(0xD800 + ((c - 0x10000) >> 10));
      WriteUnicodeEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out_ += bytes;
    }
  }

  void WriteUnicodeEscape(char32_t unit) {
    char buffer[16];
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", static_cast<unsigned>(unit));
    out_ += buffer;
  }

  void CheckSize() const {
    if (out_.size() > max_bytes_) throw Error(ErrorKind::kLimit, "JSON text too large");
  }

  void NewLine(int level) {
    if (!format_.has_indent) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) {
      out_ += format_.indent;
      CheckSize();
    }
  }

  void WriteList(const List& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += item_separator_;
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    NewLine(level);
    out_ += ']';
  }

  void WriteDict(const Dict& dict, int level) {
    if (dict.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.items()) entries.push_back(&entry);
    if (format_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return LessThan(a->first, b->first); });
    }
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += item_separator_;
      NewLine(level + 1);
      WriteKey(entries[i]->first);
      out_ += key_separator_;
      Write(entries[i]->second, level + 1);
    }
    NewLine(level);
    out_ += '}';
  }

  void WriteKey(const Value& key) {
    if (key.is_string()) {
      WriteString(key.str());
    } else if (key.is_none() || key.is_number()) {
      out_ += '"' + Scalar(key) + '"';
    } else {
      FailRuntime("keys must be str, int, float, bool or None");
    }
  }

  const JsonFormat& format_;
  const std::size_t max_bytes_;
  std::string item_separator_;
  std::string key_separator_;
  std::string out_;
};

}  // namespace

std::string ToJson(const Value& value, const JsonFormat& format, std::size_t max_bytes) {
  JsonWriter writer(format, max_bytes);
  writer.Write(value, 0);
  return writer.Take();
}

absl::StatusOr<Value> ParseJson(std::string_view json) {
  ValueBuilder builder;
  if (!nlohmann::json::sax_parse(json, &builder)) {
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", builder.error()));
  }
  return builder.Take();
}

absl::StatusOr<std::string> DumpJson(const Value& value) {
  try {
    return ToJson(value, JsonFormat(), kMaxPrintedBytes);
  } catch (const Error& error) {
    return absl::InvalidArgumentError(error.message());
  }
}

}  // namespace baton::text::jinja
