#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/load/workload.h"
#include "common/status.h"

namespace baton::bench {
namespace {

// No served context comes near it; larger is a damaged file.
constexpr int kMaxLength = 1 << 26;

absl::StatusOr<absl::Time> ParseAzureTime(absl::string_view text) {
  absl::Time time;
  std::string error;
  const std::string form(text);
  if (!absl::ParseTime("%Y-%m-%d %H:%M:%E*S", form, &time, &error)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", form, "\" is no time: ", error));
  }
  return time;
}

absl::Status CheckLengths(const TraceEntry& entry) {
  if (entry.input_length < 0 || entry.input_length > kMaxLength || entry.output_length < 0 ||
      entry.output_length > kMaxLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("lengths out of range: ", entry.input_length, " and ", entry.output_length));
  }
  return absl::OkStatus();
}

absl::StatusOr<TraceEntry> ParseAzureLine(const std::string& line, absl::Time& first) {
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  TraceEntry entry;
  if (cells.size() < 3 || !absl::SimpleAtoi(cells[1], &entry.input_length) ||
      !absl::SimpleAtoi(cells[2], &entry.output_length)) {
    return absl::InvalidArgumentError("expected TIMESTAMP,ContextTokens,GeneratedTokens");
  }
  BATON_ASSIGN_OR_RETURN(const absl::Time time, ParseAzureTime(cells[0]));
  if (first == absl::InfinitePast()) first = time;
  entry.arrival = time - first;
  BATON_RETURN_IF_ERROR(CheckLengths(entry));
  return entry;
}

absl::StatusOr<TraceEntry> ParseMooncakeLine(const std::string& line) {
  try {
    const auto json = nlohmann::json::parse(line);
    TraceEntry entry;
    entry.arrival = absl::Milliseconds(json.at("timestamp").get<double>());
    entry.input_length = json.at("input_length").get<int>();
    entry.output_length = json.at("output_length").get<int>();
    if (json.contains("hash_ids")) {
      entry.hash_ids = json.at("hash_ids").get<std::vector<std::int64_t>>();
    }
    BATON_RETURN_IF_ERROR(CheckLengths(entry));
    return entry;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

}  // namespace

absl::StatusOr<std::vector<TraceEntry>> ReadTrace(const std::string& path, int limit) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("trace file not readable: \"", path, "\"; give --trace-file"));
  }
  const bool json_lines = absl::EndsWith(path, ".jsonl");
  std::vector<TraceEntry> entries;
  absl::Time first = absl::InfinitePast();
  int number = 0;
  for (std::string line; static_cast<int>(entries.size()) < limit && std::getline(file, line);) {
    ++number;
    if (line.empty() || line == "\r" || (!json_lines && number == 1)) continue;  // header
    auto entry = json_lines ? ParseMooncakeLine(line) : ParseAzureLine(line, first);
    if (!entry.ok()) return Annotate(entry.status(), absl::StrCat(path, " line ", number));
    entries.push_back(*std::move(entry));
  }
  if (entries.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no requests"));
  return entries;
}

}  // namespace baton::bench
