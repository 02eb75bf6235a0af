#include "router/http/answer_format.h"

#include "router/api/json_text.h"

namespace baton::router {

void AppendUsage(const Usage& usage, std::string& out) {
  out += "{\"prompt_tokens\":";
  AppendInt(usage.num_prompt_tokens, out);
  out += ",\"completion_tokens\":";
  AppendInt(usage.num_completion_tokens, out);
  out += ",\"total_tokens\":";
  AppendInt(usage.num_prompt_tokens + usage.num_completion_tokens, out);
  out += '}';
}

void AppendFinishReason(const ChoiceDelta& delta, std::string& out) {
  switch (delta.finish) {
    case FinishReason::kNone:
      out += "null";
      return;
    case FinishReason::kStop:
      out += "\"stop\"";
      return;
    case FinishReason::kLength:
      out += "\"length\"";
      return;
  }
}

void AppendStopReason(const ChoiceDelta& delta, std::string& out) {
  if (delta.stop_string.has_value()) {
    AppendJsonString(*delta.stop_string, out);
  } else if (delta.stop_token.has_value()) {
    AppendInt(*delta.stop_token, out);
  } else {
    out += "null";
  }
}

void AppendPromptLogprobs(const std::vector<SampledToken>& tokens, const text::Tokenizer& tokenizer,
                          std::string& out) {
  out += "[null";  // nothing comes before the first
  for (const SampledToken& token : tokens) {
    out += ",{";
    const auto append = [&](std::int32_t id, float logprob, std::size_t rank) {
      if (out.back() != '{') out += ',';
      out += '"';
      AppendInt(id, out);
      out += "\":{\"logprob\":";
      AppendLogprob(logprob, out);
      out += ",\"rank\":";
      if (rank > 0) {
        AppendInt(static_cast<std::int64_t>(rank), out);
      } else {
        out += "null";  // below the best that were asked for
      }
      out += ",\"decoded_token\":";
      AppendJsonString(tokenizer.TokenText(id), out);
      out += '}';
    };
    bool among_best = false;
    for (std::size_t i = 0; i < token.top.size(); ++i) {
      among_best |= token.top[i].token == token.token;
      append(token.top[i].token, token.top[i].logprob, i + 1);
    }
    if (!among_best) append(token.token, token.logprob, 0);
    out += '}';
  }
  out += ']';
}

}  // namespace baton::router
