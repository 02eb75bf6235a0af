#include "text/tokenizer/pre_tokenizer.h"

#include <utility>

#include "text/tokenizer/byte_level.h"

namespace baton::text {
namespace {

class Split final : public PreTokenizer {
 public:
  Split(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void Apply(Pieces& pieces) const override {
    if (pieces.views.empty()) return;
    const char* const front = pieces.views.front().data();
    std::vector<std::string_view> out;
    out.reserve(pieces.views.size() * 2);
    for (const std::string_view piece : pieces.views) Cut(piece, out);
    pieces.views = std::move(out);
    pieces.at_front &= !pieces.views.empty() && pieces.views.front().data() == front;
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
      ForEachPart(*pattern_, piece, [&](std::size_t begin, std::size_t end, bool) {
        if (end > begin) out.push_back(piece.substr(begin, end - begin));
      });
      return;
    }
    std::vector<Part> parts;
    ForEachPart(*pattern_, piece, [&](std::size_t begin, std::size_t end, bool is_match) {
      parts.push_back({begin, end, is_match != invert_});
    });
    for (const Part& part : Merge(parts)) {
      if (part.is_match && behavior_ == SplitBehavior::kRemoved) continue;
      if (part.end > part.begin) out.push_back(piece.substr(part.begin, part.end - part.begin));
    }
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

  const std::unique_ptr<Pattern> pattern_;
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

class ByteAlphabet final : public PreTokenizer {
 public:
  void Apply(Pieces& pieces) const override {
    for (std::string_view& piece : pieces.views) {
      piece = pieces.owned.emplace_back(AlphabetFromBytes(piece));
    }
  }
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void Apply(Pieces& pieces) const override {
    std::vector<std::string_view> out;
    bool at_front = pieces.at_front;
    for (const std::string_view piece : pieces.views) {
      const std::string_view rewritten = pieces.owned.emplace_back(Rewrite(piece, at_front));
      if (split_) {
        Cut(rewritten, out);
      } else {
        out.push_back(rewritten);
      }
      at_front = false;
    }
    pieces.views = std::move(out);
  }

 private:
  std::string Rewrite(std::string_view piece, bool at_front) const {
    std::string out;
    out.reserve(piece.size() + 2 * replacement_.size());
    const bool has_front = piece.front() == ' ' || piece.starts_with(replacement_);
    const bool wanted =
        prepend_ == PrependScheme::kAlways || (prepend_ == PrependScheme::kFirst && at_front);
    if (wanted && !has_front) out = replacement_;
    for (const char c : piece) {
      if (c == ' ') {
        out += replacement_;
      } else {
        out += c;
      }
    }
    return out;
  }

  void Cut(std::string_view piece, std::vector<std::string_view>& out) const {
    std::size_t begin = 0;
    while (begin < piece.size()) {
      const bool at_replacement = piece.substr(begin).starts_with(replacement_);
      std::size_t next =
          piece.find(replacement_, begin + (at_replacement ? replacement_.size() : 0));
      if (next == std::string_view::npos) next = piece.size();
      out.push_back(piece.substr(begin, next - begin));
      begin = next;
    }
  }

  const std::string replacement_;
  const PrependScheme prepend_;
  const bool split_;
};

}  // namespace

std::unique_ptr<PreTokenizer> MakeSplit(std::unique_ptr<Pattern> pattern, SplitBehavior behavior,
                                        bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}

std::unique_ptr<PreTokenizer> MakeSplit(Regex regex, SplitBehavior behavior, bool invert) {
  return MakeSplit(MakeRegexPattern(std::move(regex)), behavior, invert);
}

std::unique_ptr<PreTokenizer> MakePrefixSpace() { return std::make_unique<PrefixSpace>(); }

std::unique_ptr<PreTokenizer> MakeByteAlphabet() { return std::make_unique<ByteAlphabet>(); }

std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, PrependScheme prepend,
                                            bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), prepend, split);
}

}  // namespace baton::text
