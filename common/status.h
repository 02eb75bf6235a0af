#pragma once
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expr`, an absl::Status, is not OK.
#define BATON_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                  \
    if (absl::Status baton_status_ = (expr); !baton_status_.ok()) return baton_status_; \
  } while (false)

#define BATON_STATUS_CONCAT_INNER_(a, b) a##b
#define BATON_STATUS_CONCAT_(a, b) BATON_STATUS_CONCAT_INNER_(a, b)

// Assigns the value of `expr`, an absl::StatusOr, to `lhs` (which may declare a variable), or
// returns its error from the enclosing function.
#define BATON_ASSIGN_OR_RETURN(lhs, expr) \
  BATON_ASSIGN_OR_RETURN_INNER_(BATON_STATUS_CONCAT_(baton_statusor_, __LINE__), lhs, expr)
#define BATON_ASSIGN_OR_RETURN_INNER_(statusor, lhs, expr) \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = *std::move(statusor)

namespace baton {

// Returns `status` with "`place`: " put before its message; OK stays OK. Used on the way up to name
// the file, tensor, worker or transfer that an error belongs to.
absl::Status Annotate(const absl::Status& status, std::string_view place);

// The HTTP status code that a Status of ours becomes at the router's door.
int HttpStatusCode(absl::StatusCode code);

}  // namespace baton
