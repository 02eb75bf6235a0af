#include "text/tokenizer/tokenizer_json.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/builders.h"

namespace baton::text {

absl::StatusOr<std::unique_ptr<Pipeline>> BuildFromTokenizerJson(std::string_view json) {
  simdjson::dom::parser parser;
  JsonPart root;
  if (const auto error = parser.parse(simdjson::padded_string(json)).get(root)) {
    return Damaged(absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }
  if (!root.is_object()) return Damaged("not an object");
  auto pipeline = std::make_unique<Pipeline>();
  BATON_ASSIGN_OR_RETURN(const bool model_takes_bytes, ModelTakesBytes(root));
  BATON_RETURN_IF_ERROR(AddNormalizers(root, *pipeline));
  BATON_RETURN_IF_ERROR(AddPreTokenizers(root, model_takes_bytes, *pipeline));
  BATON_ASSIGN_OR_RETURN(JsonModel model, ReadModel(root, model_takes_bytes));
  pipeline->model = std::move(model.model);
  BATON_ASSIGN_OR_RETURN(std::vector<AddedToken> added, ReadAddedTokens(root, model.vocabulary));
  BATON_RETURN_IF_ERROR(AddTokens(root, model.vocabulary, added, *pipeline));
  BATON_RETURN_IF_ERROR(AddPostProcessor(root, *pipeline));
  pipeline->Finish(std::move(added));
  return pipeline;
}

}  // namespace baton::text
