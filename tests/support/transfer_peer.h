#pragma once
#include <numeric>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/transfer_ticket.h"
#include "tests/support/transfer_rig.h"

// What the two-process transfer tests and their peers agree on.
namespace baton::kvtransfer {

inline constexpr int kPeerLayers = 6;
inline constexpr int kPeerBlocks = 240;
inline constexpr int kPeerTokens = kPeerBlocks * 16;
inline constexpr std::size_t kPeerBlockBytes = 12288;
inline constexpr unsigned kPeerSeed = 7;

struct PeerTicket {
  TransferTicket ticket;
  int layers = 0;  // how many to put
};

inline std::string PrintPeerTicket(const TransferTicket& ticket) {
  return absl::StrCat("ticket ", ticket.transfer_id, " ", ticket.incarnation, " ", ticket.address,
                      " ", absl::ToInt64Milliseconds(ticket.lease), " ", ticket.blocks.size());
}

inline bool ParsePeerTicket(const std::string& line, PeerTicket* out) {
  std::istringstream words(line);
  std::string keyword;
  std::int64_t lease_ms = 0;
  int num_blocks = 0;
  TransferTicket& ticket = out->ticket;
  if (!(words >> keyword >> ticket.transfer_id >> ticket.incarnation >> ticket.address >>
        lease_ms >> num_blocks)) {
    return false;
  }
  words >> out->layers;
  ticket.worker_id = "d-0";
  ticket.lease = absl::Milliseconds(lease_ms);
  ticket.num_tokens = num_blocks * 16;
  ticket.blocks.resize(num_blocks);
  std::iota(ticket.blocks.begin(), ticket.blocks.end(), 0);
  ticket.fingerprint = TestFingerprint(kPeerLayers);
  ticket.cut = kTestCut;
  return true;
}

}  // namespace baton::kvtransfer
