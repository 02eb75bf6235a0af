#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/tokenizer_json.h"

namespace baton::text {
namespace {

using Vocabulary = std::vector<std::pair<std::string, std::int32_t>>;

constexpr std::string_view kPostProcessors =
    "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence";

// A few holes are normal; a file whose ids would ask for much more memory than it has tokens is
// damaged.
absl::StatusOr<std::size_t> TableSize(const Vocabulary& vocabulary,
                                      const std::vector<AddedToken>& added) {
  constexpr std::size_t kMaxHoles = 100'000;
  std::size_t size = 0;
  for (const auto& [token, id] : vocabulary) size = std::max<std::size_t>(size, id + 1u);
  for (const AddedToken& token : added) size = std::max<std::size_t>(size, token.id + 1u);
  if (size > vocabulary.size() + added.size() + kMaxHoles) {
    return Damaged(absl::StrCat("token id ", size - 1, " with only ",
                                vocabulary.size() + added.size(), " tokens"));
  }
  return size;
}

void PutToken(std::int32_t id, std::string_view spelling, const TokenDecoder& decoder,
              Pipeline& pipeline) {
  DecodedToken decoded = decoder.Decode(spelling, /*is_first=*/false);
  pipeline.first_bytes.erase(id);
  if (decoder.DependsOnPlace()) {
    std::string first = decoder.Decode(spelling, /*is_first=*/true).bytes;
    if (first != decoded.bytes) pipeline.first_bytes[id] = std::move(first);
  }
  Pipeline::Token& token = pipeline.tokens[static_cast<std::size_t>(id)];
  token.bytes = std::move(decoded.bytes);
  token.is_byte = decoded.is_byte;
  token.exists = true;
}

absl::Status AddTemplateIds(JsonPart processor, JsonPart item, std::vector<std::int32_t>& out) {
  BATON_ASSIGN_OR_RETURN(const std::string name, StringMember(item, "id"));
  const std::optional<JsonPart> specials = Member(processor, "special_tokens");
  const std::optional<JsonPart> special = specials ? Member(*specials, name) : std::nullopt;
  simdjson::dom::array ids;
  if (!special || special->at_key("ids").get(ids)) {
    return Damaged(absl::StrCat("post_processor names an unknown token: ", name));
  }
  for (const JsonPart value : ids) {
    if (!ReadId(value, out.emplace_back())) return Damaged("post_processor's token ids");
  }
  return absl::OkStatus();
}

absl::Status AddTemplate(JsonPart processor, Pipeline& pipeline) {
  simdjson::dom::array single;
  if (processor.at_key("single").get(single)) return Damaged("TemplateProcessing without single");
  bool after_text = false;
  for (const JsonPart item : single) {
    if (Member(item, "Sequence")) {
      if (after_text) return Unsupported("post_processor", "TemplateProcessing with two sequences");
      after_text = true;
    } else if (const std::optional<JsonPart> special = Member(item, "SpecialToken")) {
      BATON_RETURN_IF_ERROR(AddTemplateIds(processor, *special,
                                           after_text ? pipeline.suffix_ids : pipeline.prefix_ids));
    } else {
      return Damaged("TemplateProcessing with an unknown item");
    }
  }
  return after_text ? absl::OkStatus() : Damaged("TemplateProcessing without a sequence");
}

// BertProcessing and RobertaProcessing: "cls" goes before, "sep" behind.
absl::Status AddClassifierTokens(JsonPart processor, Pipeline& pipeline) {
  for (const auto& [key, ids] :
       {std::pair("cls", &pipeline.prefix_ids), std::pair("sep", &pipeline.suffix_ids)}) {
    simdjson::dom::array pair;
    JsonPart id;
    if (processor.at_key(key).get(pair) || pair.at(1).get(id) || !ReadId(id, ids->emplace_back())) {
      return Damaged(absl::StrCat(TypeOf(processor), ": ", key, " is not a token and its id"));
    }
  }
  return absl::OkStatus();
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

absl::StatusOr<AddedToken> ReadAddedToken(JsonPart token, std::size_t number) {
  AddedToken out;
  JsonPart id;
  if (token.at_key("id").get(id) || !ReadId(id, out.id)) {
    return Damaged(absl::StrCat("id of added token number ", number));
  }
  BATON_ASSIGN_OR_RETURN(out.content, StringMember(token, "content"));
  BATON_ASSIGN_OR_RETURN(out.special, BoolMember(token, "special", false));
  BATON_ASSIGN_OR_RETURN(out.normalized, BoolMember(token, "normalized", !out.special));
  BATON_ASSIGN_OR_RETURN(out.single_word, BoolMember(token, "single_word", false));
  BATON_ASSIGN_OR_RETURN(out.lstrip, BoolMember(token, "lstrip", false));
  BATON_ASSIGN_OR_RETURN(out.rstrip, BoolMember(token, "rstrip", false));
  return out;
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(JsonPart root,
                                                        const Vocabulary& vocabulary) {
  std::vector<AddedToken> added;
  simdjson::dom::array tokens;
  if (!Member(root, "added_tokens")) return added;
  if (root.at_key("added_tokens").get(tokens)) return Damaged("added_tokens is not a list");
  std::size_t number = 0;
  for (const JsonPart token : tokens) {
    BATON_ASSIGN_OR_RETURN(AddedToken read, ReadAddedToken(token, number++));
    if (!read.content.empty()) added.push_back(std::move(read));
  }
  absl::flat_hash_map<std::string, std::int32_t> ids(added.size());
  for (const AddedToken& token : added) ids[token.content] = -1;
  for (const auto& [token, id] : vocabulary) {
    if (const auto found = ids.find(token); found != ids.end()) found->second = id;
  }
  for (AddedToken& token : added) {
    if (const std::int32_t id = ids[token.content]; id >= 0) token.id = id;
  }
  return added;
}

absl::Status AddTokens(JsonPart root, const Vocabulary& vocabulary,
                       const std::vector<AddedToken>& added, Pipeline& pipeline) {
  TokenDecoder decoder;
  BATON_RETURN_IF_ERROR(ReadDecoder(root, decoder, pipeline.strip));
  BATON_ASSIGN_OR_RETURN(const std::size_t size, TableSize(vocabulary, added));
  pipeline.tokens.resize(size);
  std::vector<std::string_view> spellings(size);
  for (const auto& [token, id] : vocabulary) {
    if (pipeline.tokens[id].exists) return Damaged(absl::StrCat("two tokens with the id ", id));
    PutToken(id, token, decoder, pipeline);
    spellings[id] = token;
  }
  for (const AddedToken& token : added) {
    if (pipeline.tokens[token.id].exists && spellings[token.id] != token.content) {
      return Damaged(absl::StrCat("two tokens with the id ", token.id, ": \"",
                                  Absl(spellings[token.id]), "\" and \"", token.content, "\""));
    }
    bool keeps_front = true;
    PutToken(token.id,
             token.normalized ? pipeline.Normalize(token.content, keeps_front) : token.content,
             decoder, pipeline);
    spellings[token.id] = token.content;
  }
  return absl::OkStatus();
}

absl::Status AddPostProcessor(JsonPart root, Pipeline& pipeline) {
  BATON_ASSIGN_OR_RETURN(const std::vector<JsonPart> steps,
                         StepsOf(root, "post_processor", "processors"));
  bool adds_tokens = false;
  for (const JsonPart step : steps) {
    const std::string type = TypeOf(step);
    if (type == "ByteLevel") continue;  // only moves offsets
    // The reference stops at a second one: it no longer sees a single text.
    if (std::exchange(adds_tokens, true)) {
      return Unsupported("post_processor", absl::StrCat(type, " after another that adds tokens"));
    }
    if (type == "TemplateProcessing") {
      BATON_RETURN_IF_ERROR(AddTemplate(step, pipeline));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      BATON_RETURN_IF_ERROR(AddClassifierTokens(step, pipeline));
    } else {
      return Unsupported("post_processor", type, kPostProcessors);
    }
  }
  BATON_RETURN_IF_ERROR(CheckAddedIds(pipeline.prefix_ids, pipeline));
  return CheckAddedIds(pipeline.suffix_ids, pipeline);
}

}  // namespace baton::text
