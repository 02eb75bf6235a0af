#include <utility>

#include "router/api/json_text.h"
#include "router/http/answer_format.h"

namespace baton::router {
namespace {

class ChatFormat final : public AnswerFormat {
 public:
  explicit ChatFormat(AnswerContext context) : context_(std::move(context)) {
    head_ = Head("chat.completion.chunk") + ",\"choices\":[";
    tail_ = context_.request->answer.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
  }

  void AppendEvents(const ChoiceDelta& delta, std::string& out) override {
    if (delta.first) AppendRoleEvent(delta, out);
    if (!delta.text.empty() || !delta.logprobs.empty() || !delta.token_ids.empty()) {
      AppendEventHead(delta.index, out);
      out += ",\"delta\":{\"content\":\"";
      AppendJsonEscaped(delta.text, out);
      out += "\"},\"logprobs\":";
      AppendLogprobs(delta.logprobs, out);
      out += ",\"finish_reason\":null";
      if (answer().return_token_ids) {
        out += ",\"token_ids\":";
        AppendIntArray(delta.token_ids, out);
      }
      out += '}';
      out += tail_;
    }
    if (delta.finished()) {
      AppendEventHead(delta.index, out);
      out += ",\"delta\":{},\"logprobs\":null,\"finish_reason\":";
      AppendFinishReason(delta, out);
      out += ",\"stop_reason\":";
      AppendStopReason(delta, out);
      out += '}';
      out += tail_;
    }
  }

  void AppendUsageEvent(const Usage& usage, std::string& out) override {
    out += "data: ";
    out += head_;
    out += "],\"usage\":";
    AppendUsage(usage, out);
    out += "}\n\n";
  }

  std::string Body(const std::vector<ChoiceDelta>& choices, const Usage& usage) override {
    std::string out = Head("chat.completion") + ",\"choices\":[";
    for (const ChoiceDelta& choice : choices) {
      if (choice.index > 0) out += ',';
      out += "{\"index\":";
      AppendInt(choice.index, out);
      out += ",\"message\":{\"role\":\"assistant\",\"content\":";
      AppendJsonString(choice.text, out);
      out += ",\"refusal\":null},\"logprobs\":";
      AppendLogprobs(choice.logprobs, out);
      out += ",\"finish_reason\":";
      AppendFinishReason(choice, out);
      out += ",\"stop_reason\":";
      AppendStopReason(choice, out);
      if (answer().return_token_ids) {
        out += ",\"token_ids\":";
        AppendIntArray(choice.token_ids, out);
      }
      out += '}';
    }
    out += "],\"usage\":";
    AppendUsage(usage, out);
    if (answer().wants_prompt_logprobs && !choices.empty()) {
      out += ",\"prompt_logprobs\":";
      AppendPromptLogprobs(choices[0].prompt_logprobs, *context_.model->tokenizer, out);
    }
    if (answer().return_token_ids) {
      out += ",\"prompt_token_ids\":";
      AppendIntArray(context_.request->prompts[0].tokens, out);
    }
    out += '}';
    return out;
  }

 private:
  const AnswerOptions& answer() const { return context_.request->answer; }

  std::string Head(std::string_view object) const {
    std::string head = "{\"id\":";
    AppendJsonString(context_.id, head);
    head += ",\"object\":\"";
    head += object;
    head += "\",\"created\":";
    AppendInt(context_.created, head);
    head += ",\"model\":";
    AppendJsonString(context_.request->model, head);
    return head;
  }

  void AppendEventHead(std::int32_t index, std::string& out) const {
    out += "data: ";
    out += head_;
    out += "{\"index\":";
    AppendInt(index, out);
  }

  void AppendRoleEvent(const ChoiceDelta& delta, std::string& out) const {
    AppendEventHead(delta.index, out);
    out +=
        ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
        "\"finish_reason\":null}";
    if (answer().return_token_ids && delta.index == 0) {
      out += "],\"prompt_token_ids\":";
      AppendIntArray(context_.request->prompts[0].tokens, out);
      out.append(tail_, 1);
    } else {
      out += tail_;
    }
  }

  void AppendTokenHead(const TokenLogprob& token, std::string& out) const {
    const text::Tokenizer& tokenizer = *context_.model->tokenizer;
    out += "{\"token\":";
    AppendJsonString(tokenizer.TokenText(token.token), out);
    out += ",\"logprob\":";
    AppendLogprob(token.logprob, out);
    out += ",\"bytes\":[";
    bool more = false;
    for (const char byte : tokenizer.TokenBytes(token.token)) {
      if (std::exchange(more, true)) out += ',';
      AppendInt(static_cast<unsigned char>(byte), out);
    }
    out += ']';
  }

  void AppendLogprobs(const std::vector<SampledToken>& tokens, std::string& out) const {
    if (!answer().logprobs) {
      out += "null";
      return;
    }
    out += "{\"content\":[";
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) out += ',';
      AppendTokenHead({tokens[i].token, tokens[i].logprob}, out);
      out += ",\"top_logprobs\":[";
      for (std::size_t k = 0; k < tokens[i].top.size(); ++k) {
        if (k > 0) out += ',';
        AppendTokenHead(tokens[i].top[k], out);
        out += '}';
      }
      out += "]}";
    }
    out += "]}";
  }

  const AnswerContext context_;
  std::string head_;  // of every event, up to its choices
  std::string tail_;  // of every event, after its choices
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeChatFormat(AnswerContext context) {
  return std::make_unique<ChatFormat>(std::move(context));
}

}  // namespace baton::router
