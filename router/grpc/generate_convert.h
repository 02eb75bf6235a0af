#pragma once
#include "absl/status/statusor.h"
#include "baton/v1/generate.pb.h"
#include "router/api/generation_request.h"
#include "router/generation/choice_text.h"

namespace baton::router {

// Reads and checks a gRPC request. Ranges are checked by the same code as the HTTP door's, so that
// errors name the same fields.
absl::StatusOr<GenerationRequest> FromProto(const v1::GenerateRequest& proto);

void FillResponse(const ChoiceDelta& delta, v1::GenerateResponse& out);

}  // namespace baton::router
