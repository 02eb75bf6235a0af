#pragma once
#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "common/transfer_ticket.h"
#include "kvtransfer/side_channel.h"
#include "kvtransfer/transfer.h"

// What the two ends of a link say to each other, as plain values. docs/handoff.md tells when.
namespace baton::kvtransfer {

inline constexpr std::uint32_t kProtocolVersion = 3;

// Enough to tell whether two processes can map each other's memory; see host_identity.h.
struct HostIdentity {
  std::string boot_id;
  std::string ipc_namespace;
  std::string mount_namespace;
  bool operator==(const HostIdentity&) const = default;
};

struct RingOffer {
  std::string path;  // empty: none offered
  std::uint64_t nonce = 0;
};

// Opens a link. Sender to receiver.
struct Hello {
  std::uint32_t protocol_version = kProtocolVersion;
  std::string worker_id;
  std::uint64_t incarnation = 0;
  std::string expected_worker_id;
  std::uint64_t expected_incarnation = 0;
  ModelFingerprint fingerprint;
  KvCut cut;  // the sender's
  HostIdentity host;
  RingOffer ring;
  std::string side_channel;  // beside the stream: "nccl"; empty: none can be had
};
// Accepts a link. Receiver to sender; a refusal is `Refused` with transfer id 0.
struct Welcome {
  std::uint32_t protocol_version = kProtocolVersion;
  std::string worker_id;
  std::uint64_t incarnation = 0;
  std::string transport;
  std::string transport_reason;
  KvCut cut;  // the receiver's
};

// Sender to receiver, about one transfer.
struct BeginTransfer {
  int num_layers = 0;
  int num_blocks = 0;  // of the prompt, of the sender's block size
};
struct FinishTransfer {
  std::int64_t num_blocks = 0;  // sent, over all ranks and layers
  HandoffRecord record;
};
struct AbortTransfer {
  absl::Status why;
};
struct RenewLease {};

// Receiver to sender, about one transfer.
struct Acknowledged {};
struct Refused {
  absl::Status why;
};
struct LeaseRenewed {};

// One control frame. `transfer_id` is the receiver's; `incarnation` is the receiver's as the ticket
// has it, so that a frame that outlives a restart is recognised. Both 0 in Hello and Welcome.
struct Message {
  std::uint64_t transfer_id = 0;
  std::uint64_t incarnation = 0;
  std::variant<Hello, Welcome, BeginTransfer, FinishTransfer, AbortTransfer, RenewLease,
               Acknowledged, Refused, LeaseRenewed, OpenPair, ClosePairs, AnnounceBlocks>
      body;
};

// Blocks that one data frame has at most: bounds its checksums, and what a header makes us claim.
inline constexpr int kMaxBlocksPerFrame = 8192;

// Heads the bytes of `num_blocks` consecutive prompt blocks of one layer as one rank of the sender
// holds them.
struct DataHeader {
  std::uint64_t transfer_id = 0;
  std::uint64_t incarnation = 0;
  std::uint16_t rank = 0;  // of the sender's group
  std::int32_t layer = 0;
  std::int32_t first_block = 0;  // prompt block, of the sender's block size
  std::int32_t num_blocks = 0;
  bool checksummed = false;  // a CRC32C per block stands between header and bytes
  int last_block() const { return first_block + num_blocks; }
  bool operator==(const DataHeader&) const = default;
};

}  // namespace baton::kvtransfer
