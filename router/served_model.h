#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "text/chat_template_set.h"
#include "text/tokenizer.h"

namespace baton::router {

// What the doors know of the model whose requests they take: its names, text side and limits. No
// weights. Immutable and thread-safe once made.
struct ServedModel {
  std::vector<std::string> names;  // as listed by /v1/models; the first is the default
  std::string path;                // --model as given; accepted as a name too
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<const text::ChatTemplateSet> chat_templates;  // nullptr: the model has none
  // What ends an output: the ids its files declare, and the marks its templates put after an
  // answer.
  std::vector<std::int32_t> eos_ids;
  std::map<std::string, double> generation_defaults;  // by generation_config.json's names
  std::int32_t max_context = 0;                       // prompt + output tokens
  std::string fingerprint;                            // of the checkpoint
  absl::Time loaded;

  // True for an empty name: the request leaves the choice to us.
  bool Serves(std::string_view name) const;

  struct Options {
    std::string path;
    std::vector<std::string> names;  // empty: the file's or directory's name
    std::int32_t max_context = 0;    // 0: the model's own
    std::string chat_template_path;  // one template instead of the model's own; empty: those
  };
  // Opens the checkpoint at `path` for its metadata and text assets.
  //   kNotFound, kInvalidArgument, kFailedPrecondition  as Checkpoint::Open, Tokenizer::Create and
  //   ChatTemplateSet::Create say; a max_context beyond the model's is kInvalidArgument
  static absl::StatusOr<std::unique_ptr<const ServedModel>> Load(const Options& options);
};

}  // namespace baton::router
