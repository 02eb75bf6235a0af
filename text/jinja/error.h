#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace baton::text::jinja {

// A place in a template's source, counted from 1; columns count characters.
struct Position {
  int line = 1;
  int column = 1;
};

enum class ErrorKind : std::uint8_t {
  kSyntax,
  kUnsupported,  // a tag, filter, test or function that does not exist here
  kRaised,       // raise_exception: the message is the template's own
  kUndefined,
  kRuntime,   // what is a TypeError, ValueError, ... in Python
  kSecurity,  // refused by the sandbox
  kLimit,     // a bound of limits.h
};

// Thrown inside jinja/ only, where it stands for the exceptions of the language itself; Program
// turns it into a Status at its border.
class Error final : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  Error(ErrorKind kind, std::string message, Position position)
      : kind_(kind), message_(std::move(message)), position_(position), has_position_(true) {}

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  Position position() const { return position_; }
  // Names the innermost place; later (outer) ones are ignored.
  void SetPosition(Position position) {
    if (!has_position_) position_ = position;
    has_position_ = true;
  }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorKind kind_;
  std::string message_;
  Position position_;
  bool has_position_ = false;
};

// For what Python would raise as TypeError and the like.
[[noreturn]] inline void FailRuntime(std::string message) {
  throw Error(ErrorKind::kRuntime, std::move(message));
}

}  // namespace baton::text::jinja
