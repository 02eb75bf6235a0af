#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/builders.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/byte_level_bpe.h"

namespace baton::text {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Damaged(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("damaged: ", Absl(what)));
}
absl::Status Unsupported(std::string_view part, std::string_view name) {
  return absl::FailedPreconditionError(absl::StrCat("unsupported ", Absl(part), ": ", Absl(name)));
}

// The member `key`, or nothing when it is absent or null (or `parent` is no object).
std::optional<element> Member(element parent, std::string_view key) {
  element value;
  if (parent.at_key(key).get(value) || value.is_null()) return std::nullopt;
  return value;
}

bool BoolMember(element parent, std::string_view key, bool fallback) {
  const std::optional<element> value = Member(parent, key);
  bool out = fallback;
  if (value && !value->get(out)) return out;
  return fallback;
}

std::string StringMember(element parent, std::string_view key) {
  const std::optional<element> value = Member(parent, key);
  std::string_view out;
  if (value && !value->get(out)) return std::string(out);
  return {};
}

// The members of a "Sequence" under `key`; of anything else the thing itself.
absl::StatusOr<std::vector<element>> Flatten(element step, std::string_view key, int depth = 0) {
  if (StringMember(step, "type") != "Sequence") return std::vector<element>{step};
  array steps;
  if (depth > 16 || step.at_key(key).get(steps)) return Damaged("a Sequence without its steps");
  std::vector<element> flat;
  for (const element inner : steps) {
    BATON_ASSIGN_OR_RETURN(std::vector<element> more, Flatten(inner, key, depth + 1));
    flat.insert(flat.end(), more.begin(), more.end());
  }
  return flat;
}

absl::Status AddNormalizers(element root, Pipeline& pipeline) {
  const std::optional<element> normalizer = Member(root, "normalizer");
  if (!normalizer) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(std::vector<element> steps, Flatten(*normalizer, "normalizers"));
  for (const element step : steps) {
    BATON_ASSIGN_OR_RETURN(auto made, MakeUnicodeNormalizer(StringMember(step, "type")));
    pipeline.normalizers.push_back(std::move(made));
  }
  return absl::OkStatus();
}

absl::StatusOr<SplitBehavior> ParseBehavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return Unsupported("Split behavior", name);
}

std::string QuoteRegex(std::string_view literal) {
  constexpr std::string_view kSpecial = "\\^$.[]|()?*+{}#-&";
  std::string quoted;
  for (const char c : literal) {
    if (kSpecial.find(c) != std::string_view::npos) quoted += '\\';
    quoted += c;
  }
  return quoted;
}

absl::Status AddSplit(element step, Pipeline& pipeline) {
  const std::optional<element> pattern = Member(step, "pattern");
  if (!pattern) return Damaged("a Split without a pattern");
  std::string regex = StringMember(*pattern, "Regex");
  if (regex.empty()) regex = QuoteRegex(StringMember(*pattern, "String"));
  if (regex.empty()) return Damaged("a Split with an empty pattern");
  BATON_ASSIGN_OR_RETURN(Regex compiled, Regex::Compile(regex));
  BATON_ASSIGN_OR_RETURN(SplitBehavior behavior, ParseBehavior(StringMember(step, "behavior")));
  pipeline.pre_tokenizers.push_back(
      MakeSplit(std::move(compiled), behavior, BoolMember(step, "invert", false)));
  return absl::OkStatus();
}

absl::Status AddByteLevel(element step, Pipeline& pipeline) {
  if (BoolMember(step, "add_prefix_space", true)) {
    pipeline.pre_tokenizers.push_back(MakePrefixSpace());
  }
  if (!BoolMember(step, "use_regex", true)) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(kGpt2Regex));
  pipeline.pre_tokenizers.push_back(
      MakeSplit(std::move(regex), SplitBehavior::kIsolated, /*invert=*/false));
  return absl::OkStatus();
}

absl::Status AddDigits(element step, Pipeline& pipeline) {
  BATON_ASSIGN_OR_RETURN(Regex regex, Regex::Compile("\\p{N}"));
  const SplitBehavior behavior = BoolMember(step, "individual_digits", false)
                                     ? SplitBehavior::kIsolated
                                     : SplitBehavior::kContiguous;
  pipeline.pre_tokenizers.push_back(MakeSplit(std::move(regex), behavior, /*invert=*/false));
  return absl::OkStatus();
}

absl::Status AddPreTokenizers(element root, Pipeline& pipeline) {
  std::vector<element> steps;
  if (const std::optional<element> pre = Member(root, "pre_tokenizer")) {
    BATON_ASSIGN_OR_RETURN(steps, Flatten(*pre, "pretokenizers"));
  }
  bool byte_level = false;
  for (const element step : steps) {
    const std::string type = StringMember(step, "type");
    // After ByteLevel the text is spelled in its alphabet; what follows would have to match that.
    if (byte_level) return Unsupported("pre_tokenizer after ByteLevel", type);
    if (type == "Split") {
      BATON_RETURN_IF_ERROR(AddSplit(step, pipeline));
    } else if (type == "Digits") {
      BATON_RETURN_IF_ERROR(AddDigits(step, pipeline));
    } else if (type == "ByteLevel") {
      BATON_RETURN_IF_ERROR(AddByteLevel(step, pipeline));
      byte_level = true;
    } else {
      return Unsupported("pre_tokenizer", type);
    }
  }
  if (!byte_level) return Unsupported("model", "BPE without a ByteLevel pre_tokenizer");
  return absl::OkStatus();
}

absl::Status CheckDecoder(element root) {
  const std::optional<element> decoder = Member(root, "decoder");
  if (!decoder) return Unsupported("decoder", "none");
  const std::string type = StringMember(*decoder, "type");
  return type == "ByteLevel" ? absl::OkStatus() : Unsupported("decoder", type);
}

absl::Status AddMerge(element merge, ByteLevelBpeSpec& spec) {
  std::string_view text;
  array pair;
  std::string_view left;
  std::string_view right;
  if (!merge.get(text)) {
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

absl::Status CheckModelOptions(element model) {
  const std::string type = StringMember(model, "type");
  if (type != "BPE" && !(type.empty() && Member(model, "merges"))) {
    return Unsupported("model", type.empty() ? "without a type" : type);
  }
  if (!StringMember(model, "continuing_subword_prefix").empty()) {
    return Unsupported("model option", "continuing_subword_prefix");
  }
  if (!StringMember(model, "end_of_word_suffix").empty()) {
    return Unsupported("model option", "end_of_word_suffix");
  }
  if (BoolMember(model, "byte_fallback", false))
    return Unsupported("model option", "byte_fallback");
  double dropout = 0.0;
  if (const auto value = Member(model, "dropout");
      value && !value->get(dropout) && dropout != 0.0) {
    return Unsupported("model option", "dropout");
  }
  return absl::OkStatus();
}

absl::StatusOr<ByteLevelBpeSpec> ReadModel(element root) {
  const std::optional<element> model = Member(root, "model");
  if (!model) return Damaged("no model");
  BATON_RETURN_IF_ERROR(CheckModelOptions(*model));
  ByteLevelBpeSpec spec;
  object vocabulary;
  array merges;
  if (model->at_key("vocab").get(vocabulary)) return Damaged("the model has no vocab");
  if (model->at_key("merges").get(merges)) return Damaged("the model has no merges");
  for (const auto [token, value] : vocabulary) {
    std::int64_t id = 0;
    if (value.get(id) || id < 0 || id > INT32_MAX) {
      return Damaged(absl::StrCat("id of the token \"", Absl(token), "\""));
    }
    spec.vocabulary.emplace_back(token, static_cast<std::int32_t>(id));
  }
  for (const element merge : merges) BATON_RETURN_IF_ERROR(AddMerge(merge, spec));
  spec.ignore_merges = BoolMember(*model, "ignore_merges", false);
  spec.fuse_unk = BoolMember(*model, "fuse_unk", false);
  if (std::string unk = StringMember(*model, "unk_token"); !unk.empty()) spec.unk_token = unk;
  return spec;
}

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(element root) {
  std::vector<AddedToken> added;
  array tokens;
  if (root.at_key("added_tokens").get(tokens)) return added;
  for (const element token : tokens) {
    AddedToken& out = added.emplace_back();
    std::int64_t id = 0;
    if (token.at_key("id").get(id) || id < 0 || id > INT32_MAX) {
      return Damaged(absl::StrCat("id of added token number ", added.size() - 1));
    }
    out.id = static_cast<std::int32_t>(id);
    out.content = StringMember(token, "content");
    out.special = BoolMember(token, "special", false);
    out.normalized = BoolMember(token, "normalized", !out.special);
    out.single_word = BoolMember(token, "single_word", false);
    out.lstrip = BoolMember(token, "lstrip", false);
    out.rstrip = BoolMember(token, "rstrip", false);
  }
  return added;
}

// Fills the table of tokens by id. A few holes are normal; a file whose ids would ask for much more
// memory than it has tokens is damaged.
absl::Status AddTokens(const ByteLevelBpeSpec& spec, const std::vector<AddedToken>& added,
                       Pipeline& pipeline) {
  constexpr std::size_t kMaxHoles = 100'000;
  std::size_t size = 0;
  for (const auto& [token, id] : spec.vocabulary) size = std::max<std::size_t>(size, id + 1u);
  for (const AddedToken& token : added) size = std::max<std::size_t>(size, token.id + 1u);
  if (size > spec.vocabulary.size() + added.size() + kMaxHoles) {
    return Damaged(absl::StrCat("token id ", size - 1, " with only ",
                                spec.vocabulary.size() + added.size(), " tokens"));
  }
  pipeline.tokens.resize(size);
  for (const auto& [token, id] : spec.vocabulary) {
    if (pipeline.tokens[id].exists) {
      return Damaged(absl::StrCat("two tokens with the id ", id));
    }
    pipeline.tokens[id].exists = true;
    pipeline.tokens[id].bytes = BytesFromAlphabet(token).value_or(token);
  }
  for (const AddedToken& token : added) {
    pipeline.tokens[token.id].exists = true;
    // The reference decodes added tokens by the alphabet as well, if they lie within it.
    pipeline.tokens[token.id].bytes = BytesFromAlphabet(token.content).value_or(token.content);
  }
  return absl::OkStatus();
}

absl::Status AddTemplateIds(element processor, element item, std::vector<std::int32_t>& out) {
  const std::string name = StringMember(item, "id");
  array ids;
  const std::optional<element> specials = Member(processor, "special_tokens");
  const std::optional<element> special = specials ? Member(*specials, name) : std::nullopt;
  if (!special || special->at_key("ids").get(ids)) {
    return Damaged(absl::StrCat("post_processor names an unknown token: ", name));
  }
  for (const element value : ids) {
    std::int64_t id = 0;
    if (value.get(id) || id < 0 || id > INT32_MAX) return Damaged("post_processor's token ids");
    out.push_back(static_cast<std::int32_t>(id));
  }
  return absl::OkStatus();
}

absl::Status AddTemplate(element processor, Pipeline& pipeline) {
  array single;
  if (processor.at_key("single").get(single)) return Damaged("TemplateProcessing without single");
  bool after_text = false;
  for (const element item : single) {
    if (Member(item, "Sequence")) {
      if (after_text) return Unsupported("post_processor", "TemplateProcessing with two sequences");
      after_text = true;
    } else if (const std::optional<element> special = Member(item, "SpecialToken")) {
      BATON_RETURN_IF_ERROR(AddTemplateIds(processor, *special,
                                           after_text ? pipeline.suffix_ids : pipeline.prefix_ids));
    } else {
      return Damaged("TemplateProcessing with an unknown item");
    }
  }
  return after_text ? absl::OkStatus() : Damaged("TemplateProcessing without a sequence");
}

// The model must be able to take what the post-processor adds.
absl::Status CheckAddedIds(const std::vector<std::int32_t>& ids, const Pipeline& pipeline) {
  for (const std::int32_t id : ids) {
    if (static_cast<std::size_t>(id) >= pipeline.tokens.size() || !pipeline.tokens[id].exists) {
      return Damaged(absl::StrCat("post_processor adds an id that is no token: ", id));
    }
  }
  return absl::OkStatus();
}

absl::Status AddPostProcessor(element root, Pipeline& pipeline) {
  const std::optional<element> post = Member(root, "post_processor");
  if (!post) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(std::vector<element> steps, Flatten(*post, "processors"));
  for (const element step : steps) {
    const std::string type = StringMember(step, "type");
    if (type == "TemplateProcessing") {
      BATON_RETURN_IF_ERROR(AddTemplate(step, pipeline));
    } else if (type != "ByteLevel") {  // which only moves offsets
      return Unsupported("post_processor", type);
    }
  }
  BATON_RETURN_IF_ERROR(CheckAddedIds(pipeline.prefix_ids, pipeline));
  return CheckAddedIds(pipeline.suffix_ids, pipeline);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pipeline>> BuildFromTokenizerJson(std::string_view json) {
  simdjson::dom::parser parser;
  element root;
  if (const auto error = parser.parse(simdjson::padded_string(json)).get(root)) {
    return Damaged(absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }
  if (!root.is_object()) return Damaged("not an object");
  auto pipeline = std::make_unique<Pipeline>();
  BATON_ASSIGN_OR_RETURN(const ByteLevelBpeSpec spec, ReadModel(root));
  BATON_RETURN_IF_ERROR(AddNormalizers(root, *pipeline));
  BATON_RETURN_IF_ERROR(AddPreTokenizers(root, *pipeline));
  BATON_RETURN_IF_ERROR(CheckDecoder(root));
  BATON_ASSIGN_OR_RETURN(std::vector<AddedToken> added, ReadAddedTokens(root));
  BATON_RETURN_IF_ERROR(AddTokens(spec, added, *pipeline));
  BATON_RETURN_IF_ERROR(AddPostProcessor(root, *pipeline));
  BATON_ASSIGN_OR_RETURN(pipeline->model, ByteLevelBpe::Create(spec));
  pipeline->Finish(std::move(added));
  return pipeline;
}

}  // namespace baton::text
