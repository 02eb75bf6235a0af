#pragma once
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/http/server.h"
#include "common/metrics.h"
#include "router/core/router_core.h"
#include "router/core/timeline_store.h"
#include "router/generation/prepared_request.h"
#include "router/generation/text_pool.h"
#include "router/metrics.h"
#include "router/served_model.h"

namespace baton::router {

// What both doors need. The references must outlive them.
struct DoorContext {
  const ServedModel& model;
  RouterCore& core;
  TextPool& text_pool;
  RouterMetrics& metrics;
  const Clock& clock;
  PrepareOptions prepare;
  std::vector<std::string> api_keys;
  absl::Duration request_timeout;
  std::size_t max_unread_bytes = 1 << 20;
  int max_choices = 128;  // sequences of one request; more can never be admitted
};

// The HTTP door: routes, authorization, JSON errors. Handle runs on HTTP threads and never blocks;
// generation requests go on to the text pool and from there to the core. Thread-safe.
class HttpFront {
 public:
  HttpFront(DoorContext context, TimelineStore& timelines, metrics::Registry& registry);

  void Handle(http::Request request, std::shared_ptr<http::Response> response);

 private:
  struct Call {
    http::Request request;
    std::shared_ptr<http::Response> response;
    std::string request_id;
  };
  struct Route {
    const char* method;
    const char* path;  // one that ends in '/' takes everything below
    bool needs_key;
    void (HttpFront::*handler)(Call call);
  };
  static const std::vector<Route>& Routes();

  void Chat(Call call);
  void Completions(Call call);
  void Tokenize(Call call);
  void Detokenize(Call call);
  void ListModels(Call call);
  void ShowModel(Call call);
  void Health(Call call);
  void Ready(Call call);
  void Metrics(Call call);
  void Version(Call call);
  void ShowTimeline(Call call);

  // Runs `job` in the text pool, or answers 429.
  void InTextPool(Call call, void (HttpFront::*job)(Call& call));
  void Generate(Call& call, absl::StatusOr<GenerationRequest> parsed);
  void DoChat(Call& call);
  void DoCompletions(Call& call);
  void DoTokenize(Call& call);
  void DoDetokenize(Call& call);
  std::string ModelJson(const std::string& name) const;

  const DoorContext context_;
  TimelineStore& timelines_;
  metrics::Registry& registry_;
};

// What /debug/requests/ID shows of a request's sequences.
std::string TimelineJson(const std::vector<SequenceRecord>& records);

}  // namespace baton::router
