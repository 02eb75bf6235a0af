#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "router/core/router_core.h"
#include "router/generation/generation.h"
#include "router/metrics.h"

namespace baton::router {

// What a door says of a request besides its content.
struct RequestEnvelope {
  std::string door;  // "chat", "completions", "grpc": a metrics label
  std::string request_id;
  absl::Time arrival;
  absl::Time deadline;
};

// Hands a prepared request to the core. Its outcome is counted once, whatever it is; an error is
// given to `output`. Returns the key by which to cancel it. Thread-safe.
RequestKey SubmitRequest(RouterCore& core, RouterMetrics& metrics, const ServedModel& model,
                         const RequestEnvelope& envelope,
                         std::shared_ptr<const PreparedRequest> request,
                         std::shared_ptr<GenerationOutput> output);

// A client's own request id if it is fit for logs and headers (1 to 128 printable ASCII characters
// without spaces, quotes or slashes), else a new random one.
std::string ChooseRequestId(std::string_view from_client);

// Compares in time that does not depend on where they differ.
bool SecretsEqual(std::string_view given, std::string_view expected);
// Whether "Bearer KEY" carries one of `keys`; with no keys everything is allowed.
absl::Status CheckAuthorization(std::string_view header, const std::vector<std::string>& keys);

}  // namespace baton::router
