#include "cli/inspect/text_report.h"

#include <simdjson.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/inspect/model_report.h"
#include "common/clock.h"
#include "common/status.h"
#include "router/api/request_parser.h"
#include "router/generation/prepared_request.h"

namespace baton::cli {
namespace {

// "ByteLevel", or the parts of a Sequence joined by " + ". Empty for null or nothing.
std::string PartNames(simdjson::dom::element part) {
  std::string_view type;
  if (part["type"].get(type) != simdjson::SUCCESS) return "";
  if (type != "Sequence") return std::string(type);
  std::vector<std::string> names;
  for (const char* key : {"normalizers", "pretokenizers", "decoders", "processors"}) {
    simdjson::dom::array parts;
    if (part[key].get(parts) != simdjson::SUCCESS) continue;
    for (const simdjson::dom::element each : parts) names.push_back(PartNames(each));
  }
  return absl::StrJoin(names, " + ");
}

std::string TokenizerJsonKind(const std::string& text) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(text).get(root) != simdjson::SUCCESS) return "tokenizer.json (unreadable)";
  std::vector<std::string> parts;
  std::string_view model;
  if (root["model"]["type"].get(model) == simdjson::SUCCESS) parts.emplace_back(model);
  for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    simdjson::dom::element part;
    if (root[key].get(part) != simdjson::SUCCESS) continue;
    const std::string names = PartNames(part);
    if (!names.empty()) parts.push_back(absl::StrCat(key, " ", names));
  }
  return absl::StrCat("tokenizer.json: ", absl::StrJoin(parts, ", "));
}

std::string Spelled(std::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape({text.data(), text.size()}), "\"");
}

std::string IdText(const router::ServedModel& model, std::int32_t id) {
  return absl::StrCat(id, " ", Spelled(model.tokenizer->TokenBytes(id)));
}

// Much more than the largest request that a router takes by default.
constexpr std::size_t kMaxRequestBytes = std::size_t{64} << 20;

// Reads pipes too, so that a request can come from another program.
absl::StatusOr<std::string> ReadRequest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  while (file.good() && text.size() <= kMaxRequestBytes) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (text.size() > kMaxRequestBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: more than %d bytes; give a file with one chat request", path, kMaxRequestBytes));
  }
  if (!file.eof()) {
    return absl::NotFoundError(
        absl::StrCat("cannot read ", path, "; give a file with one chat request"));
  }
  return text;
}

// What each template makes of a request's forms that it cannot take as they are.
void PrintTemplates(const router::ServedModel& model) {
  if (model.chat_templates == nullptr) {
    PrintRow("chat template", "none");
    return;
  }
  bool first = true;
  for (const auto& [name, chat_template] : model.chat_templates->templates()) {
    const text::ChatTemplateTraits& traits = chat_template->traits();
    PrintRow(
        first ? "chat template" : "",
        absl::StrFormat("%s: content parts %s, call arguments %s", name,
                        traits.takes_content_parts ? "read by the template" : "joined before it",
                        traits.takes_call_arguments_as_text ? "as JSON text" : "as objects"));
    first = false;
  }
}

}  // namespace

std::string TokenizerKind(const checkpoint::TextAssets& assets) {
  if (assets.gguf.has_value()) {
    const std::string& pre = assets.gguf->pre;
    return absl::StrCat("GGUF ", assets.gguf->model,
                        pre.empty() ? "" : absl::StrCat(", pre-tokenizer ", pre));
  }
  if (assets.tokenizer_json.has_value()) return TokenizerJsonKind(*assets.tokenizer_json);
  return "none";
}

void PrintText(const checkpoint::TextAssets& assets, const router::ServedModel& model) {
  PrintRow("tokenizer", TokenizerKind(assets));
  PrintRow("", absl::StrCat(model.tokenizer->vocab_size(), " tokens"));
  bool first = true;
  for (const auto& [role, text] : assets.special_tokens) {
    const auto id = model.tokenizer->TokenId(text);
    PrintRow(first ? "special tokens" : "",
             absl::StrCat(role, " ", Spelled(text),
                          id.has_value() ? absl::StrCat(" (", *id, ")") : " (no such token)"));
    first = false;
  }
  std::vector<std::string> ends;
  for (const std::int32_t id : model.eos_ids) ends.push_back(IdText(model, id));
  PrintRow("ends an output", ends.empty() ? "nothing" : absl::StrJoin(ends, ", "));
  PrintTemplates(model);
  std::vector<std::string> defaults;
  for (const auto& [name, value] : model.generation_defaults) {
    defaults.push_back(absl::StrFormat("%s %g", name, value));
  }
  if (!defaults.empty()) PrintRow("sampling defaults", absl::StrJoin(defaults, ", "));
}

void PrintTokens(const router::ServedModel& model, const std::string& text) {
  const std::vector<std::int32_t> ids = model.tokenizer->Encode(text);
  for (const std::int32_t id : ids) {
    std::printf("%8d  %s%s\n", id, Spelled(model.tokenizer->TokenBytes(id)).c_str(),
                model.tokenizer->IsSpecial(id) ? "  special" : "");
  }
  std::printf("%d tokens, decoded: %s\n", static_cast<int>(ids.size()),
              Spelled(model.tokenizer->Decode(ids, /*skip_special_tokens=*/false)).c_str());
}

absl::Status PrintRendered(const router::ServedModel& model, const std::string& path) {
  BATON_ASSIGN_OR_RETURN(std::string body, ReadRequest(path));
  const absl::string_view trimmed = absl::StripLeadingAsciiWhitespace(body);
  if (!trimmed.empty() && trimmed.front() == '[') body = absl::StrCat("{\"messages\":", body, "}");
  auto request = router::ParseChatRequest(body);
  if (!request.ok()) return Annotate(request.status(), path);
  const RealClock clock;
  auto rendered = router::RenderChat(request->chat, model, clock);
  if (!rendered.ok()) return Annotate(rendered.status(), path);
  std::printf("%s", rendered->c_str());
  if (rendered->empty() || rendered->back() != '\n') std::printf("\n");
  return absl::OkStatus();
}

}  // namespace baton::cli
