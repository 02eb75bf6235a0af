#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/builders.h"
#include "text/tokenizer/character_classes.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/word_scanner.h"

namespace baton::text {
namespace {

constexpr std::string_view kSupported =
    "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, "
    "BertPreTokenizer, CharDelimiterSplit, Sequence";
constexpr std::string_view kBehaviors =
    "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous";

using Step = std::unique_ptr<PreTokenizer>;

Step SplitAt(bool (*is_in)(char32_t), SplitBehavior behavior) {
  return MakeSplit(MakeClassPattern(is_in), behavior, /*invert=*/false);
}

absl::StatusOr<SplitBehavior> ReadBehavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return Unsupported("behavior", name, kBehaviors);
}

absl::Status AddSplit(JsonPart step, std::vector<Step>& steps) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Pattern> pattern, ReadPattern(step));
  BATON_ASSIGN_OR_RETURN(const std::string name, StringMember(step, "behavior"));
  BATON_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(name));
  BATON_ASSIGN_OR_RETURN(const bool invert, BoolMember(step, "invert", false));
  steps.push_back(MakeSplit(std::move(pattern), behavior, invert));
  return absl::OkStatus();
}

absl::Status AddByteLevel(JsonPart step, bool leaves_bytes, std::vector<Step>& steps) {
  BATON_ASSIGN_OR_RETURN(const bool add_prefix_space, BoolMember(step, "add_prefix_space", true));
  BATON_ASSIGN_OR_RETURN(const bool use_regex, BoolMember(step, "use_regex", true));
  if (add_prefix_space) steps.push_back(MakePrefixSpace());
  if (use_regex) {
    BATON_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(kGpt2Regex));
    steps.push_back(MakeSplit(std::move(regex), SplitBehavior::kIsolated, /*invert=*/false));
  }
  if (!leaves_bytes) steps.push_back(MakeByteAlphabet());
  return absl::OkStatus();
}

absl::Status AddMetaspace(JsonPart step, std::vector<Step>& steps) {
  BATON_ASSIGN_OR_RETURN(std::string replacement, CharacterMember(step, "replacement"));
  BATON_ASSIGN_OR_RETURN(const std::string name, StringMember(step, "prepend_scheme", "always"));
  BATON_ASSIGN_OR_RETURN(const bool add_prefix_space, BoolMember(step, "add_prefix_space", true));
  BATON_ASSIGN_OR_RETURN(const bool split, BoolMember(step, "split", true));
  if (!add_prefix_space && name != "never") {
    return Damaged("Metaspace: add_prefix_space is false, but prepend_scheme is not never");
  }
  PrependScheme scheme;
  if (name == "always") {
    scheme = PrependScheme::kAlways;
  } else if (name == "first") {
    scheme = PrependScheme::kFirst;
  } else if (name == "never") {
    scheme = PrependScheme::kNever;
  } else {
    return Unsupported("prepend_scheme", name, "always, first, never");
  }
  steps.push_back(MakeMetaspace(std::move(replacement), scheme, split));
  return absl::OkStatus();
}

absl::Status AddDigits(JsonPart step, std::vector<Step>& steps) {
  BATON_ASSIGN_OR_RETURN(const bool individual, BoolMember(step, "individual_digits", false));
  steps.push_back(
      SplitAt(IsNumber, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  return absl::OkStatus();
}

absl::Status AddPunctuation(JsonPart step, std::vector<Step>& steps) {
  BATON_ASSIGN_OR_RETURN(const std::string name, StringMember(step, "behavior", "Isolated"));
  BATON_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(name));
  steps.push_back(SplitAt(IsPunctuation, behavior));
  return absl::OkStatus();
}

bool IsSymbol(char32_t c) { return !IsWord(c) && !IsWhiteSpace(c); }

// Words and runs of symbols, of `\w+|[^\w\s]+`: white space goes, then each change of class cuts.
void AddWhitespace(std::vector<Step>& steps) {
  steps.push_back(SplitAt(IsWhiteSpace, SplitBehavior::kRemoved));
  steps.push_back(SplitAt(IsSymbol, SplitBehavior::kContiguous));
}

absl::Status AddStep(JsonPart step, bool leaves_bytes, std::vector<Step>& steps) {
  const std::string type = TypeOf(step);
  if (type == "Split") return AddSplit(step, steps);
  if (type == "ByteLevel") return AddByteLevel(step, leaves_bytes, steps);
  if (type == "Metaspace") return AddMetaspace(step, steps);
  if (type == "Digits") return AddDigits(step, steps);
  if (type == "Punctuation") return AddPunctuation(step, steps);
  if (type == "Whitespace") {
    AddWhitespace(steps);
  } else if (type == "WhitespaceSplit") {
    steps.push_back(SplitAt(IsWhiteSpace, SplitBehavior::kRemoved));
  } else if (type == "BertPreTokenizer") {
    steps.push_back(SplitAt(IsWhiteSpace, SplitBehavior::kRemoved));
    steps.push_back(SplitAt(IsPunctuation, SplitBehavior::kIsolated));
  } else if (type == "CharDelimiterSplit") {
    BATON_ASSIGN_OR_RETURN(std::string delimiter, CharacterMember(step, "delimiter"));
    steps.push_back(MakeSplit(MakeLiteralPattern(std::move(delimiter)), SplitBehavior::kRemoved,
                              /*invert=*/false));
  } else {
    return Unsupported("pre_tokenizer", type, kSupported);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddPreTokenizers(JsonPart root, bool model_takes_bytes, Pipeline& pipeline) {
  BATON_ASSIGN_OR_RETURN(const std::vector<JsonPart> steps,
                         StepsOf(root, "pre_tokenizer", "pretokenizers"));
  // Each spells a character beyond ASCII with twice as many bytes.
  constexpr int kMaxByteLevels = 4;
  if (std::count_if(steps.begin(), steps.end(),
                    [](JsonPart step) { return TypeOf(step) == "ByteLevel"; }) > kMaxByteLevels) {
    return Unsupported("pre_tokenizer", absl::StrCat("more than ", kMaxByteLevels, " ByteLevel"));
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool leaves_bytes = model_takes_bytes && i + 1 == steps.size();
    BATON_RETURN_IF_ERROR(AddStep(steps[i], leaves_bytes, pipeline.pre_tokenizers));
  }
  return absl::OkStatus();
}

}  // namespace baton::text
