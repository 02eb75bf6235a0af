#pragma once
#include <string_view>

#include "common/http/server.h"

namespace baton::http {

// Splits an origin-form target "/a%20b?x=1" into request->path and request->query, decoding percent
// escapes (and + in the query). False when it is malformed.
bool ParseTarget(std::string_view target, Request* request);

}  // namespace baton::http
