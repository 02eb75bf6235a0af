#include "worker/admin_server.h"

#include <string_view>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "common/status.h"

namespace baton::worker {
namespace {

constexpr std::string_view kTimelinePrefix = "/debug/requests/";

void SendText(http::Response& response, int status, std::string text) {
  response.Send(status, {{"content-type", "text/plain; charset=utf-8"}}, std::move(text));
}

void SendJson(http::Response& response, int status, std::string json) {
  response.Send(status, {{"content-type", "application/json"}}, std::move(json));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const Options& options,
                                                                Sources sources) {
  auto admin = absl::WrapUnique(new AdminServer(std::move(sources)));
  http::ServerOptions server_options;
  server_options.host = options.host;
  server_options.port = options.port;
  server_options.max_connections = 256;
  AdminServer* self = admin.get();  // outlives the server, which it owns
  BATON_ASSIGN_OR_RETURN(
      admin->server_,
      http::Server::Start(server_options, [self](const http::Request& request,
                                                 const std::shared_ptr<http::Response>& response) {
        self->Handle(request, *response);
      }));
  return admin;
}

void AdminServer::Handle(const http::Request& request, http::Response& response) const {
  if (request.method != "GET" && request.method != "HEAD") {
    return SendText(response, 405, "only GET is answered here\n");
  }
  const std::string& path = request.path;
  if (path == "/metrics") {
    return response.Send(200, {{"content-type", "text/plain; version=0.0.4; charset=utf-8"}},
                         sources_.registry->Serialize());
  }
  if (path == "/health") return SendText(response, 200, "ok\n");
  if (path == "/ready") {
    const std::string reason = sources_.not_ready();
    return reason.empty() ? SendText(response, 200, "ready\n")
                          : SendText(response, 503, reason + "\n");
  }
  if (path == "/debug/state") return SendJson(response, 200, sources_.state());
  if (path.size() > kTimelinePrefix.size() && path.starts_with(kTimelinePrefix)) {
    const auto timeline = sources_.timelines->Find(path.substr(kTimelinePrefix.size()));
    if (timeline.has_value()) {
      return SendJson(response, 200, TimelineToJson(*timeline, absl::Now()));
    }
  }
  SendText(response, 404, "nothing here\n");
}

}  // namespace baton::worker
