#include "router/http/http_front.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status.h"
#include "router/api/api_error.h"
#include "router/api/json_text.h"
#include "router/api/request_parser.h"
#include "router/generation/intake.h"
#include "router/http/answer_format.h"
#include "router/http/http_outputs.h"

namespace baton::router {
namespace {

std::string HeaderOf(const http::Request& request, const std::string& lower_case_name) {
  const auto it = request.headers.find(lower_case_name);
  return it == request.headers.end() ? std::string() : it->second;
}

void SendJson(http::Response& response, const std::string& request_id, std::string body,
              int status = 200) {
  response.Send(status, {{"Content-Type", "application/json"}, {"X-Request-Id", request_id}},
                std::move(body));
}

bool Matches(std::string_view route, std::string_view path) {
  if (route.back() != '/') return route == path;
  return path.size() > route.size() && path.substr(0, route.size()) == route;
}

}  // namespace

HttpFront::HttpFront(DoorContext context, TimelineStore& timelines, metrics::Registry& registry)
    : context_(std::move(context)), timelines_(timelines), registry_(registry) {}

const std::vector<HttpFront::Route>& HttpFront::Routes() {
  static const std::vector<Route> routes = {
      {"POST", "/v1/chat/completions", true, &HttpFront::Chat},
      {"POST", "/v1/completions", true, &HttpFront::Completions},
      {"GET", "/v1/models", true, &HttpFront::ListModels},
      {"GET", "/v1/models/", true, &HttpFront::ShowModel},
      {"POST", "/tokenize", true, &HttpFront::Tokenize},
      {"POST", "/detokenize", true, &HttpFront::Detokenize},
      {"GET", "/debug/requests/", true, &HttpFront::ShowTimeline},
      {"GET", "/health", false, &HttpFront::Health},
      {"GET", "/ready", false, &HttpFront::Ready},
      {"GET", "/metrics", false, &HttpFront::Metrics},
      {"GET", "/version", false, &HttpFront::Version},
  };
  return routes;
}

void HttpFront::Handle(http::Request request, std::shared_ptr<http::Response> response) {
  std::string request_id = ChooseRequestId(HeaderOf(request, "x-request-id"));
  if (request.method == "HEAD") request.method = "GET";  // the server leaves the body out
  const char* allowed = nullptr;
  for (const Route& route : Routes()) {
    if (!Matches(route.path, request.path)) continue;
    allowed = route.method;
    if (request.method != route.method) continue;
    if (route.needs_key) {
      const absl::Status status =
          CheckAuthorization(HeaderOf(request, "authorization"), context_.api_keys);
      if (!status.ok()) return SendError(*response, status, request_id);
    }
    (this->*route.handler)({std::move(request), std::move(response), std::move(request_id)});
    return;
  }
  ApiError error;
  error.type = "invalid_request_error";
  http::Headers headers = {{"Content-Type", "application/json"}, {"X-Request-Id", request_id}};
  if (allowed != nullptr) {
    error.http_status = 405;
    error.message = absl::StrCat("method ", request.method, " is not allowed for ", request.path,
                                 "; use ", allowed);
    headers["Allow"] = allowed;
  } else {
    error.http_status = 404;
    error.message = absl::StrCat("no such path: ", request.path);
    error.code = "not_found";
  }
  response->Send(error.http_status, headers, error.ToJson());
}

// ---- generation

void HttpFront::InTextPool(Call call, void (HttpFront::*job)(Call& call)) {
  auto shared = std::make_shared<Call>(std::move(call));
  const bool taken = context_.text_pool.Run([this, shared, job] {
    if (!shared->response->closed()) (this->*job)(*shared);
  });
  if (!taken) {
    SendError(*shared->response,
              absl::ResourceExhaustedError("too many requests wait to be read; retry later"),
              shared->request_id);
  }
}

void HttpFront::Chat(Call call) { InTextPool(std::move(call), &HttpFront::DoChat); }
void HttpFront::Completions(Call call) { InTextPool(std::move(call), &HttpFront::DoCompletions); }
void HttpFront::DoChat(Call& call) { Generate(call, ParseChatRequest(call.request.body)); }
void HttpFront::DoCompletions(Call& call) {
  Generate(call, ParseCompletionRequest(call.request.body));
}

void HttpFront::Generate(Call& call, absl::StatusOr<GenerationRequest> parsed) {
  const bool is_chat = call.request.path == "/v1/chat/completions";
  const std::string door = is_chat ? "chat" : "completions";
  absl::StatusOr<PreparedRequest> prepared =
      parsed.ok() ? Prepare(*std::move(parsed), context_.model, context_.prepare, context_.clock)
                  : parsed.status();
  if (prepared.ok() && prepared->num_choices() > context_.max_choices) {
    prepared =
        FieldError("n", "invalid_value",
                   absl::StrFormat("too many choices: %d prompts times n = %d, at most %d",
                                   prepared->prompts.size(), prepared->n, context_.max_choices));
  }
  if (!prepared.ok()) {
    context_.metrics.CountRequest(door, HttpStatusCode(prepared.status().code()));
    return SendError(*call.response, prepared.status(), call.request_id);
  }
  auto request = std::make_shared<const PreparedRequest>(*std::move(prepared));
  AnswerContext answer;
  answer.id = (is_chat ? "chatcmpl-" : "cmpl-") + call.request_id;
  answer.created = absl::ToUnixSeconds(call.request.received);
  answer.request = request.get();
  answer.model = &context_.model;
  AnswerParts parts{call.response, call.request_id, request,
                    is_chat ? MakeChatFormat(answer) : MakeCompletionFormat(answer)};
  std::shared_ptr<GenerationOutput> output;
  if (request->stream) {
    auto stream = std::make_shared<StreamingOutput>(std::move(parts), context_.max_unread_bytes);
    stream->ListenForDrains();
    output = std::move(stream);
  } else {
    output = std::make_shared<CollectingOutput>(std::move(parts));
  }
  const RequestEnvelope envelope{door, call.request_id, call.request.received,
                                 call.request.received + context_.request_timeout};
  const RequestKey key = SubmitRequest(context_.core, context_.metrics, context_.model, envelope,
                                       std::move(request), std::move(output));
  call.response->OnGone([core = &context_.core, key] { core->Cancel(key); });
}

// ---- text

void HttpFront::Tokenize(Call call) { InTextPool(std::move(call), &HttpFront::DoTokenize); }
void HttpFront::Detokenize(Call call) { InTextPool(std::move(call), &HttpFront::DoDetokenize); }

void HttpFront::DoTokenize(Call& call) {
  const absl::StatusOr<TokenizeRequest> request = ParseTokenizeRequest(call.request.body);
  if (!request.ok()) return SendError(*call.response, request.status(), call.request_id);
  const ServedModel& model = context_.model;
  if (!model.Serves(request->model)) {
    return SendError(*call.response, ModelNotFound(request->model), call.request_id);
  }
  const bool add_special_tokens = request->add_special_tokens.value_or(!request->is_chat);
  absl::StatusOr<std::vector<std::int32_t>> tokens =
      request->is_chat
          ? EncodeChat(request->chat, add_special_tokens, model, context_.clock)
          : model.tokenizer->Encode(request->prompt, {.add_special_tokens = add_special_tokens});
  if (!tokens.ok()) return SendError(*call.response, tokens.status(), call.request_id);
  std::string out = absl::StrFormat(
      "{\"count\":%d,\"max_model_len\":%d,\"tokens\":", tokens->size(), model.max_context);
  AppendIntArray(*tokens, out);
  out += ",\"token_strs\":";
  if (request->return_token_strs) {
    out += '[';
    for (std::size_t i = 0; i < tokens->size(); ++i) {
      if (i > 0) out += ',';
      AppendJsonString(model.tokenizer->TokenText((*tokens)[i]), out);
    }
    out += "]}";
  } else {
    out += "null}";
  }
  SendJson(*call.response, call.request_id, std::move(out));
}

void HttpFront::DoDetokenize(Call& call) {
  const absl::StatusOr<DetokenizeRequest> request = ParseDetokenizeRequest(call.request.body);
  if (!request.ok()) return SendError(*call.response, request.status(), call.request_id);
  const ServedModel& model = context_.model;
  if (!model.Serves(request->model)) {
    return SendError(*call.response, ModelNotFound(request->model), call.request_id);
  }
  if (const absl::Status status = CheckTokens(request->tokens, "tokens", model); !status.ok()) {
    return SendError(*call.response, status, call.request_id);
  }
  std::string out = "{\"prompt\":";
  AppendJsonString(model.tokenizer->Decode(request->tokens, /*skip_special_tokens=*/false), out);
  out += '}';
  SendJson(*call.response, call.request_id, std::move(out));
}

// ---- models and operation

std::string HttpFront::ModelJson(const std::string& name) const {
  std::string out = "{\"id\":";
  AppendJsonString(name, out);
  absl::StrAppend(&out,
                  ",\"object\":\"model\",\"created\":", absl::ToUnixSeconds(context_.model.loaded),
                  ",\"owned_by\":\"baton\",\"root\":");
  AppendJsonString(context_.model.path, out);
  absl::StrAppend(&out, ",\"parent\":null,\"max_model_len\":", context_.model.max_context, "}");
  return out;
}

void HttpFront::ListModels(Call call) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (std::size_t i = 0; i < context_.model.names.size(); ++i) {
    if (i > 0) out += ',';
    out += ModelJson(context_.model.names[i]);
  }
  SendJson(*call.response, call.request_id, out + "]}");
}

void HttpFront::ShowModel(Call call) {
  const std::string name = call.request.path.substr(std::string_view("/v1/models/").size());
  if (!context_.model.Serves(name)) {
    return SendError(*call.response, ModelNotFound(name), call.request_id);
  }
  SendJson(*call.response, call.request_id, ModelJson(name));
}

void HttpFront::Health(Call call) {
  SendJson(*call.response, call.request_id, "{\"status\":\"live\"}");
}

void HttpFront::Ready(Call call) {
  context_.core.Inspect(
      [call = std::move(call), ready = &context_.core](const Dispatcher& dispatcher) {
        const WorkerCounts counts = dispatcher.registry().Count();
        const bool is_ready = ready->ready();
        SendJson(
            *call.response, call.request_id,
            absl::StrFormat("{\"status\":\"%s\",\"prefill_workers\":%d,\"decode_workers\":%d,"
                            "\"both_workers\":%d,\"draining_workers\":%d,\"sequences\":%d}",
                            is_ready ? "ready" : "not ready", counts.num_prefill, counts.num_decode,
                            counts.num_both, counts.num_draining, dispatcher.num_sequences()),
            is_ready ? 200 : 503);
      });
}

void HttpFront::Metrics(Call call) {
  call.response->Send(200,
                      {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"},
                       {"X-Request-Id", call.request_id}},
                      registry_.Serialize());
}

void HttpFront::Version(Call call) {
  SendJson(*call.response, call.request_id, "{\"version\":\"" BATON_VERSION "\"}");
}

void HttpFront::ShowTimeline(Call call) {
  std::string_view id = call.request.path;
  id.remove_prefix(std::string_view("/debug/requests/").size());
  for (const std::string_view prefix : {"chatcmpl-", "cmpl-"}) {
    if (id.substr(0, prefix.size()) == prefix) {
      id.remove_prefix(prefix.size());
      break;
    }
  }
  const std::vector<SequenceRecord> records = timelines_.Find(id);
  if (records.empty()) {
    return SendError(
        *call.response,
        absl::NotFoundError("no such request: it is still running, too old, or unknown"),
        call.request_id);
  }
  SendJson(*call.response, call.request_id, TimelineJson(records));
}

}  // namespace baton::router
