#include "router/generation/choice_text.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace baton::router {

void ChoiceDelta::Merge(ChoiceDelta later) {
  text += later.text;
  token_ids.insert(token_ids.end(), later.token_ids.begin(), later.token_ids.end());
  std::move(later.logprobs.begin(), later.logprobs.end(), std::back_inserter(logprobs));
  finish = later.finish;
  stop_string = std::move(later.stop_string);
  stop_token = later.stop_token;
}

ChoiceText::ChoiceText(const text::Tokenizer& tokenizer, const AnswerOptions& answer,
                       std::int32_t index)
    : answer_(answer),
      index_(index),
      detokenizer_(tokenizer, answer.skip_special_tokens,
                   answer.continues_prompt ? text::StreamFront::kContinuation
                                           : text::StreamFront::kTextFront),
      matcher_(answer.stop, answer.include_stop_str_in_output) {}

ChoiceDelta ChoiceText::Append(const NewTokens& news) {
  ChoiceDelta delta;
  delta.index = index_;
  delta.first = !std::exchange(started_, true);
  delta.prompt_logprobs.assign(news.prompt_logprobs.begin(), news.prompt_logprobs.end());
  if (answer_.discard_output) {
    if (!news.tokens.empty() || news.finish != FinishReason::kNone) {
      delta.finish = FinishReason::kLength;
    }
    return delta;
  }
  const std::optional<std::int32_t> stop_token = StopToken(news);
  for (std::size_t i = 0; i < news.tokens.size() && !matcher_.stopped(); ++i) {
    const bool hide_text = stop_token.has_value() && i + 1 == news.tokens.size() &&
                           !answer_.include_stop_str_in_output;
    AppendToken(news.tokens[i], hide_text, delta);
  }
  if (news.finish != FinishReason::kNone && !matcher_.stopped()) Finish(news, delta);
  if (matcher_.stopped()) {
    delta.finish = FinishReason::kStop;
    delta.stop_string = answer_.stop[*matcher_.match()];
    ReleaseLogprobs(answer_.include_stop_str_in_output, delta);
    return delta;
  }
  ReleaseLogprobs(delta.finished(), delta);
  return delta;
}

void ChoiceText::AppendToken(const SampledToken& token, bool hide_text, ChoiceDelta& delta) {
  ++num_tokens_;
  if (answer_.return_token_ids) delta.token_ids.push_back(token.token);
  if (!hide_text) Show(detokenizer_.Append(token.token), delta);
  if (answer_.logprobs) held_.push_back({token, text_bytes_});
}

void ChoiceText::Show(const std::string& piece, ChoiceDelta& delta) {
  text_bytes_ += piece.size();
  const std::size_t before = delta.text.size();
  // Text of the first min_tokens is not looked at for stop strings.
  if (num_tokens_ <= answer_.min_tokens) {
    delta.text += piece;
  } else {
    delta.text += matcher_.Append(piece);
  }
  shown_bytes_ += delta.text.size() - before;
}

void ChoiceText::Finish(const NewTokens& news, ChoiceDelta& delta) {
  Show(detokenizer_.Finish(), delta);
  if (matcher_.stopped()) return;
  const std::string rest = matcher_.Flush();
  delta.text += rest;
  shown_bytes_ += rest.size();
  delta.finish = news.finish;
  const std::optional<std::int32_t> stop_token = StopToken(news);
  const auto& own = answer_.stop_token_ids;
  if (stop_token.has_value() && std::find(own.begin(), own.end(), *stop_token) != own.end()) {
    delta.stop_token = stop_token;
  }
}

std::optional<std::int32_t> ChoiceText::StopToken(const NewTokens& news) const {
  if (news.finish != FinishReason::kStop || news.tokens.empty()) return std::nullopt;
  return news.tokens.back().token;
}

void ChoiceText::ReleaseLogprobs(bool all, ChoiceDelta& delta) {
  while (!held_.empty() && (all || held_.front().end_bytes <= shown_bytes_)) {
    delta.logprobs.push_back(std::move(held_.front().token));
    held_.pop_front();
  }
}

}  // namespace baton::router
