#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/byte_level_bpe.h"
#include "text/tokenizer/character_bpe.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/unigram.h"

namespace baton::text {
namespace {

constexpr std::string_view kSupported = "BPE, Unigram";

// The files of old name no type: then the members tell.
std::string ModelType(JsonPart model) {
  std::string type = TypeOf(model);
  if (type.empty() && Member(model, "merges")) type = "BPE";
  return type;
}

absl::Status AddMerge(JsonPart merge, BpeSpec& spec) {
  std::string_view text;
  simdjson::dom::array pair;
  std::string_view left;
  std::string_view right;
  if (!merge.get(text)) {
    if (text.starts_with("#version")) return absl::OkStatus();
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return Damaged(absl::StrCat("merge number ", spec.merges.size(), " is not two tokens"));
    }
    left = text.substr(0, space);
    right = text.substr(space + 1);
  } else if (merge.get(pair) || pair.size() != 2 || pair.at(0).get(left) || pair.at(1).get(right)) {
    return Damaged(absl::StrCat("merge number ", spec.merges.size(), " is not two tokens"));
  }
  spec.merges.emplace_back(left, right);
  return absl::OkStatus();
}

absl::Status CheckBpeOptions(JsonPart model) {
  for (const char* option : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    BATON_ASSIGN_OR_RETURN(const std::string value, StringMember(model, option, ""));
    if (!value.empty()) {
      return Unsupported("BPE option", absl::StrCat(option, " = \"", value, "\""), "none or empty");
    }
  }
  // The reference drops merges at random, at inference too: the ids would differ from run to run.
  double dropout = 0.0;
  if (const auto value = Member(model, "dropout")) {
    if (value->get(dropout)) return Damaged("dropout is not a number");
  }
  if (dropout != 0.0) {
    return Unsupported("BPE option", absl::StrCat("dropout = ", dropout), "none or 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<BpeSpec> ReadBpe(JsonPart model) {
  BATON_RETURN_IF_ERROR(CheckBpeOptions(model));
  BpeSpec spec;
  simdjson::dom::object vocabulary;
  simdjson::dom::array merges;
  if (model.at_key("vocab").get(vocabulary)) return Damaged("the model has no vocab");
  if (model.at_key("merges").get(merges)) return Damaged("the model has no merges");
  spec.vocabulary.reserve(vocabulary.size());
  for (const auto [token, value] : vocabulary) {
    std::int32_t id = 0;
    if (!ReadId(value, id)) return Damaged(absl::StrCat("id of the token \"", Absl(token), "\""));
    spec.vocabulary.emplace_back(token, id);
  }
  spec.merges.reserve(merges.size());
  for (const JsonPart merge : merges) BATON_RETURN_IF_ERROR(AddMerge(merge, spec));
  spec.last_merge_wins = true;
  BATON_ASSIGN_OR_RETURN(spec.ignore_merges, BoolMember(model, "ignore_merges", false));
  BATON_ASSIGN_OR_RETURN(spec.fuse_unk, BoolMember(model, "fuse_unk", false));
  BATON_ASSIGN_OR_RETURN(spec.byte_fallback, BoolMember(model, "byte_fallback", false));
  if (Member(model, "unk_token")) {
    BATON_ASSIGN_OR_RETURN(spec.unk_token, StringMember(model, "unk_token"));
  }
  return spec;
}

absl::StatusOr<UnigramSpec> ReadUnigram(JsonPart model) {
  UnigramSpec spec;
  simdjson::dom::array vocabulary;
  if (model.at_key("vocab").get(vocabulary)) return Damaged("the model has no vocab");
  for (const JsonPart entry : vocabulary) {
    const std::size_t id = spec.vocabulary.size();
    simdjson::dom::array pair;
    std::string_view text;
    double score = 0.0;
    if (entry.get(pair) || pair.size() != 2 || pair.at(0).get(text) || pair.at(1).get(score)) {
      return Damaged(absl::StrCat("vocab entry ", id, " is not a token and its score"));
    }
    spec.vocabulary.push_back({std::string(text), static_cast<std::int32_t>(id), score});
  }
  if (const auto unk = Member(model, "unk_id")) {
    if (!ReadId(*unk, spec.unk_id) ||
        static_cast<std::size_t>(spec.unk_id) >= spec.vocabulary.size()) {
      return Damaged("unk_id is not in the vocabulary");
    }
  }
  BATON_ASSIGN_OR_RETURN(spec.byte_fallback, BoolMember(model, "byte_fallback", false));
  return spec;
}

}  // namespace

absl::StatusOr<bool> ModelTakesBytes(JsonPart root) {
  const std::optional<JsonPart> model = Member(root, "model");
  if (!model || ModelType(*model) != "BPE") return false;
  BATON_ASSIGN_OR_RETURN(const bool byte_fallback, BoolMember(*model, "byte_fallback", false));
  const auto is_byte_level = [](JsonPart step) { return TypeOf(step) == "ByteLevel"; };
  BATON_ASSIGN_OR_RETURN(const std::vector<JsonPart> normalizers,
                         StepsOf(root, "normalizer", "normalizers"));
  BATON_ASSIGN_OR_RETURN(const std::vector<JsonPart> words,
                         StepsOf(root, "pre_tokenizer", "pretokenizers"));
  return !byte_fallback && std::none_of(normalizers.begin(), normalizers.end(), is_byte_level) &&
         !words.empty() && is_byte_level(words.back()) &&
         std::none_of(words.begin(), words.end() - 1, is_byte_level);
}

absl::StatusOr<JsonModel> ReadModel(JsonPart root, bool model_takes_bytes) {
  const std::optional<JsonPart> model = Member(root, "model");
  if (!model) return Damaged("no model");
  const std::string type = ModelType(*model);
  JsonModel out;
  if (type == "BPE") {
    BATON_ASSIGN_OR_RETURN(BpeSpec spec, ReadBpe(*model));
    if (model_takes_bytes) {
      BATON_ASSIGN_OR_RETURN(out.model, ByteLevelBpe::Create(spec));
    } else {
      BATON_ASSIGN_OR_RETURN(out.model, CharacterBpe::Create(spec));
    }
    out.vocabulary = std::move(spec.vocabulary);
    return out;
  }
  if (type != "Unigram") {
    return Unsupported("model", type.empty() ? "without a type" : type, kSupported);
  }
  BATON_ASSIGN_OR_RETURN(UnigramSpec spec, ReadUnigram(*model));
  for (const UnigramSpec::Entry& entry : spec.vocabulary) {
    out.vocabulary.emplace_back(entry.text, entry.id);
  }
  BATON_ASSIGN_OR_RETURN(out.model, Unigram::Create(std::move(spec)));
  return out;
}

}  // namespace baton::text
