#include <algorithm>
#include <utility>

#include "router/api/json_text.h"
#include "router/http/answer_format.h"
#include "text/utf8.h"

namespace baton::router {
namespace {

class CompletionFormat final : public AnswerFormat {
 public:
  explicit CompletionFormat(AnswerContext context)
      : context_(std::move(context)), text_offsets_(context_.request->num_choices(), 0) {
    head_ = Head() + ",\"choices\":[";
    tail_ = answer().include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
  }

  void AppendEvents(const ChoiceDelta& delta, std::string& out) override {
    const bool shows_prompt = delta.first && answer().echo;
    if (delta.text.empty() && delta.logprobs.empty() && delta.token_ids.empty() &&
        !delta.finished() && !shows_prompt) {
      return;
    }
    out += "data: ";
    out += head_;
    AppendChoice(delta, shows_prompt, out);
    out += tail_;
  }

  void AppendUsageEvent(const Usage& usage, std::string& out) override {
    out += "data: ";
    out += head_;
    out += "],\"usage\":";
    AppendUsage(usage, out);
    out += "}\n\n";
  }

  std::string Body(const std::vector<ChoiceDelta>& choices, const Usage& usage) override {
    std::string out = head_;
    for (const ChoiceDelta& choice : choices) {
      if (choice.index > 0) out += ',';
      AppendChoice(choice, answer().echo, out);
    }
    out += "],\"usage\":";
    AppendUsage(usage, out);
    out += '}';
    return out;
  }

 private:
  const AnswerOptions& answer() const { return context_.request->answer; }
  const PreparedPrompt& PromptOf(std::int32_t choice) const {
    return context_.request->prompts[choice / context_.request->n];
  }

  std::string Head() const {
    std::string head = "{\"id\":";
    AppendJsonString(context_.id, head);
    head += ",\"object\":\"text_completion\",\"created\":";
    AppendInt(context_.created, head);
    head += ",\"model\":";
    AppendJsonString(context_.request->model, head);
    return head;
  }

  void AppendChoice(const ChoiceDelta& delta, bool shows_prompt, std::string& out) {
    out += "{\"index\":";
    AppendInt(delta.index, out);
    out += ",\"text\":\"";
    if (shows_prompt) AppendJsonEscaped(text::ToValidUtf8(PromptOf(delta.index).text), out);
    AppendJsonEscaped(delta.text, out);
    out += "\",\"logprobs\":";
    AppendLogprobs(delta, shows_prompt, out);
    out += ",\"finish_reason\":";
    AppendFinishReason(delta, out);
    if (delta.finished()) {
      out += ",\"stop_reason\":";
      AppendStopReason(delta, out);
    }
    if (answer().wants_prompt_logprobs) {
      out += ",\"prompt_logprobs\":";
      AppendPromptLogprobs(delta.prompt_logprobs, *context_.model->tokenizer, out);
    }
    if (answer().return_token_ids) {
      if (delta.first) {
        out += ",\"prompt_token_ids\":";
        AppendIntArray(PromptOf(delta.index).tokens, out);
      }
      out += ",\"token_ids\":";
      AppendIntArray(delta.token_ids, out);
    }
    out += '}';
  }

  // The prompt's tokens, of which the first has no log-probability, then the output's.
  std::vector<SampledToken> ShownTokens(const ChoiceDelta& delta, bool shows_prompt) const {
    std::vector<SampledToken> tokens;
    if (shows_prompt) {
      tokens.push_back({PromptOf(delta.index).tokens.front(), 0.0f, {}});
      tokens.insert(tokens.end(), delta.prompt_logprobs.begin(), delta.prompt_logprobs.end());
    }
    tokens.insert(tokens.end(), delta.logprobs.begin(), delta.logprobs.end());
    return tokens;
  }

  void AppendLogprobs(const ChoiceDelta& delta, bool shows_prompt, std::string& out) {
    if (!answer().logprobs) {
      out += "null";
      return;
    }
    const std::vector<SampledToken> tokens = ShownTokens(delta, shows_prompt);
    const text::Tokenizer& tokenizer = *context_.model->tokenizer;
    std::string texts, logprobs, tops, offsets;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool has_none = shows_prompt && i == 0;
      const std::string text = tokenizer.TokenText(tokens[i].token);
      for (std::string* list : {&texts, &logprobs, &tops, &offsets}) {
        if (i > 0) *list += ',';
      }
      AppendJsonString(text, texts);
      if (has_none) {
        logprobs += "null";
        tops += "null";
      } else {
        AppendLogprob(tokens[i].logprob, logprobs);
        AppendTop(tokens[i], text, tops);
      }
      AppendInt(text_offsets_[delta.index], offsets);
      text_offsets_[delta.index] += static_cast<std::int64_t>(text::CountCodePoints(text));
    }
    out += "{\"tokens\":[" + texts + "],\"token_logprobs\":[" + logprobs + "],\"top_logprobs\":";
    out += answer().num_top_logprobs > 0 ? "[" + tops + "]" : "null";
    out += ",\"text_offset\":[" + offsets + "]}";
  }

  // {"text": logprob, ...}: the best ones and the chosen one.
  void AppendTop(const SampledToken& token, const std::string& token_text, std::string& out) const {
    bool among_best = false;
    out += '{';
    for (const TokenLogprob& top : token.top) {
      if (out.back() != '{') out += ',';
      AppendJsonString(context_.model->tokenizer->TokenText(top.token), out);
      out += ':';
      AppendLogprob(top.logprob, out);
      among_best |= top.token == token.token;
    }
    if (!among_best) {
      if (out.back() != '{') out += ',';
      AppendJsonString(token_text, out);
      out += ':';
      AppendLogprob(token.logprob, out);
    }
    out += '}';
  }

  const AnswerContext context_;
  std::string head_;                        // of every event, up to its choices
  std::string tail_;                        // of every event, after its choices
  std::vector<std::int64_t> text_offsets_;  // by choice: characters before its next token
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeCompletionFormat(AnswerContext context) {
  return std::make_unique<CompletionFormat>(std::move(context));
}

}  // namespace baton::router
