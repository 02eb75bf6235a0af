#pragma once
#include "absl/status/statusor.h"
#include "baton/v1/session.pb.h"
#include "session/messages.h"

// Session messages to and from their wire form. Pure functions.
namespace baton::session {

v1::WorkerMessage ToProto(const WorkerMessage& message);
v1::RouterMessage ToProto(const RouterMessage& message);

// A peer's message, checked: ids present and short, counts not negative, enumerators known, numbers
// finite and in range, so that what comes out can be used without further care (but for ids and
// tokens that only the receiver can know).
//   kInvalidArgument  names the field and its value; the session should end
absl::StatusOr<WorkerMessage> FromProto(const v1::WorkerMessage& message);
absl::StatusOr<RouterMessage> FromProto(const v1::RouterMessage& message);

}  // namespace baton::session
