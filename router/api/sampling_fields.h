#pragma once
#include "router/api/generation_request.h"
#include "router/api/json_fields.h"

namespace baton::router {

// Reads the fields that every generation request has, whatever its prompt: sampling, lengths,
// stopping, what the answer should hold. Mistakes end up in `fields`.
void ReadSamplingFields(JsonFields& fields, GenerationRequest& request);

}  // namespace baton::router
