#pragma once
#include <limits>
#include <string_view>
#include <vector>

namespace baton {

// What is declared of one setting besides its name, default (the member's initial value) and help.
//
//   struct KvConfig {
//     int block_size = 16;
//     template <class Visitor>
//     void VisitFields(Visitor&& field) {
//       field(block_size, "block-size", {.unit = "tokens", .min = 1, .max = 256}, "Tokens per
//       ...");
//     }
//   };
//
// The name is kebab-case: flag --block-size, environment BATON_BLOCK_SIZE, YAML key block-size.
// Field types: bool, int, std::int64_t, double, std::string, absl::Duration ("250ms", "10s"),
// std::vector<std::string> (comma-separated). A config struct may visit a part of itself by calling
// part.VisitFields(field).
struct FieldSpec {
  std::string_view unit = "";
  double min = -std::numeric_limits<double>::infinity();  // of numbers; durations in seconds
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string_view> choices = {};  // of strings; empty = any
  bool secret = false;                         // never printed
  std::string_view alias = "";                 // a shorter name for the flag and the YAML key
};

}  // namespace baton
