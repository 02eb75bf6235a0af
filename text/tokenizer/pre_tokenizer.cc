#include "text/tokenizer/pre_tokenizer.h"

#include <utility>

namespace baton::text {
namespace {

class Split final : public PreTokenizer {
 public:
  Split(Regex regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  void Apply(Pieces& pieces) const override {
    std::vector<std::string_view> out;
    out.reserve(pieces.views.size() * 2);
    for (const std::string_view piece : pieces.views) Cut(piece, out);
    pieces.views = std::move(out);
  }

 private:
  struct Part {
    std::size_t begin;
    std::size_t end;
    bool is_match;
  };

  void Cut(std::string_view piece, std::vector<std::string_view>& out) const {
    if (behavior_ == SplitBehavior::kIsolated) {
      // The common case: every part stands alone, so `invert_` makes no difference.
      ForEachPart(piece, [&](const Part& part) {
        out.push_back(piece.substr(part.begin, part.end - part.begin));
      });
      return;
    }
    std::vector<Part> parts;
    ForEachPart(piece, [&](Part part) {
      part.is_match = part.is_match != invert_;
      parts.push_back(part);
    });
    for (const Part& part : Merge(parts)) {
      if (part.is_match && behavior_ == SplitBehavior::kRemoved) continue;
      out.push_back(piece.substr(part.begin, part.end - part.begin));
    }
  }

  template <class Callback>
  void ForEachPart(std::string_view piece, Callback callback) const {
    std::size_t done = 0;  // everything before it has been given out
    std::size_t from = 0;
    while (from < piece.size()) {
      const std::optional<Regex::Match> match = regex_.Find(piece, from);
      if (!match) break;
      if (match->end == match->begin) {  // an empty match cuts, but is no part itself
        if (match->begin > done) callback(Part{done, match->begin, false});
        done = match->begin;
        from = match->begin + 1;
        while (from < piece.size() && (static_cast<unsigned char>(piece[from]) & 0xC0) == 0x80) {
          ++from;
        }
        continue;
      }
      if (match->begin > done) callback(Part{done, match->begin, false});
      callback(Part{match->begin, match->end, true});
      done = from = match->end;
    }
    if (done < piece.size()) callback(Part{done, piece.size(), false});
  }

  std::vector<Part> Merge(const std::vector<Part>& parts) const {
    std::vector<Part> merged;
    bool previous_match = false;
    for (const Part& part : parts) {
      bool join = false;
      if (!merged.empty()) {
        if (behavior_ == SplitBehavior::kContiguous) join = part.is_match == previous_match;
        if (behavior_ == SplitBehavior::kMergedWithPrevious) {
          join = part.is_match && !previous_match;
        }
        if (behavior_ == SplitBehavior::kMergedWithNext) join = !part.is_match && previous_match;
      }
      if (join) {
        merged.back().end = part.end;
      } else {
        merged.push_back(part);
      }
      previous_match = part.is_match;
    }
    return merged;
  }

  const Regex regex_;
  const SplitBehavior behavior_;
  const bool invert_;
};

class PrefixSpace final : public PreTokenizer {
 public:
  void Apply(Pieces& pieces) const override {
    for (std::string_view& piece : pieces.views) {
      if (piece.front() == ' ') continue;
      std::string& owned = pieces.owned.emplace_back(" ");
      owned += piece;
      piece = owned;
    }
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> MakeSplit(Regex regex, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(regex), behavior, invert);
}

std::unique_ptr<PreTokenizer> MakePrefixSpace() { return std::make_unique<PrefixSpace>(); }

}  // namespace baton::text
