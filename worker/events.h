#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtransfer/transfer.h"
#include "session/messages.h"

// What can happen to a worker's scheduler, as plain values.
namespace baton::worker {

// One connection to one router. `link` indexes the configured routers, `session` counts that
// link's connections.
struct SessionKey {
  int link = 0;
  int session = 0;
  auto operator<=>(const SessionKey&) const = default;
  template <class H>
  friend H AbslHashValue(H h, const SessionKey& key) {
    return H::combine(std::move(h), key.link, key.session);
  }
};

// Names a request in this process: ids are unique only within a session.
struct RequestKey {
  SessionKey session;
  std::string request_id;
  auto operator<=>(const RequestKey&) const = default;
  template <class H>
  friend H AbslHashValue(H h, const RequestKey& key) {
    return H::combine(std::move(h), key.session, key.request_id);
  }
};

// A Reserve, Prefill or Cancel came in (never a Welcome).
struct RouterEvent {
  SessionKey from;
  session::RouterMessage message;
  absl::Time arrived;
};
// The session ended: every request of it is cancelled, and nothing may be sent to it.
struct SessionLost {
  SessionKey session;
};
// TransferSender's DoneCallback (prefill workers).
struct SendDone {
  std::uint64_t key = 0;
  absl::Status status;
  kvtransfer::SendReport report;
};
// TransferReceiver's on_complete and on_failed (decode workers).
struct ReceiveDone {
  std::uint64_t transfer_id = 0;
  kvtransfer::HandoffRecord record;
  kvtransfer::ReceiveReport report;
};
struct ReceiveFailed {
  std::uint64_t transfer_id = 0;
  absl::Status status;
};
// From now on new requests are refused with kUnavailable; those held go on.
struct DrainStarted {};
// Every request held now ends with `why` (the drain's deadline came).
struct EndAll {
  absl::Status why;
};

using Event = std::variant<RouterEvent, SessionLost, SendDone, ReceiveDone, ReceiveFailed,
                           DrainStarted, EndAll>;

}  // namespace baton::worker
