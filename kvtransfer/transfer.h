#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/sampling_params.h"
#include "common/transfer_ticket.h"

// Moving the KV blocks of a prompt from a prefill worker's pool into a decode worker's, layer by
// layer while the prompt is still being computed. These two facades are all that workers see; plan,
// session state machines and transports stand behind them.
namespace baton::kvtransfer {

class PoolAccess;        // pool_access.h
class SideChannels;      // side_channel.h
struct TransferMetrics;  // metrics.h

// The pools of a worker group as this library sees them: one per tensor-parallel rank, where a
// block id names the same place. The memory must outlive whoever holds the view.
struct KvMemory {
  static constexpr int kHost = -1;
  struct Rank {
    // layers[l] + block * block_bytes is one block of layer l: [K or V][kv_head][token][head_dim]
    // of the heads that KvHeadsOfRank gives this rank.
    std::vector<std::byte*> layers;
    std::size_t block_bytes = 0;
    int device = kHost;  // index of the CUDA device that the memory is on, or kHost
  };
  std::vector<Rank> ranks;
  int block_size = 0;  // tokens
  int num_blocks = 0;  // of each rank

  // Whether it has the layers and blocks that this model cut this way has.
  bool Fits(const ModelFingerprint& fingerprint) const;

  KvCut cut() const {
    return {.block_size = block_size,
            .tensor_parallel_size = static_cast<std::int32_t>(ranks.size())};
  }
};

// The end-of-transfer record: what the decode worker needs besides the blocks.
struct HandoffRecord {
  SampledToken first_token;
  FinishReason finish = FinishReason::kNone;  // not kNone: the request ended with its first token
};

struct LayerMark {
  int layer = 0;
  absl::Time ready;  // PutLayer was called (the last call for this layer)
  absl::Time sent;   // its first byte was given to the wire; InfinitePast: it has none to send
};

// What a sender knows of a transfer that was acknowledged.
struct SendReport {
  std::int64_t bytes = 0;
  absl::Time first_byte;
  absl::Time completed;     // Complete() was called
  absl::Time acknowledged;  // the receiver has every block and the record
  std::vector<LayerMark> layers;
  std::string transport;  // "nccl", "shm" or "grpc"
};

// The prefill worker's end. Thread-safe; PutLayer and Complete never block on the wire.
class TransferSender {
 public:
  struct Options {
    std::string worker_id;
    std::uint64_t incarnation = 0;
    ModelFingerprint fingerprint;
    KvMemory memory;  // Fits the fingerprint
    // How to get at the memory; null: it is host memory. See pool_access.h.
    std::shared_ptr<PoolAccess> access;
    std::shared_ptr<SideChannels> side_channels;  // from device to device; null: none
    // "auto": nccl between devices, else shm on the same host, else grpc; "nccl", "shm": only that;
    // "grpc"
    std::string transport = "auto";
    absl::Duration connect_timeout = absl::Seconds(5);
    absl::Duration ack_timeout = absl::Seconds(10);  // from Complete to the acknowledgement
    bool checksum = false;                           // CRC32C per block, verified by the receiver
    TransferMetrics* metrics = nullptr;              // may be null; must outlive the sender
  };
  // Called once per transfer, on a library thread: OK with a report, or why it failed. Either way
  // the library no longer reads the transfer's source blocks.
  using DoneCallback =
      std::function<void(std::uint64_t key, const absl::Status& status, const SendReport& report)>;

  static std::unique_ptr<TransferSender> Create(Options options, const Clock& clock);
  // Aborts what is under way; calls every pending DoneCallback before it returns.
  virtual ~TransferSender() = default;

  // Call it as soon as the ticket is at hand, even if the prompt still queues: from here on the
  // lease is renewed, and until here it runs.
  // Starts the transfer of `ticket`, opening the link to its worker (handshake, fingerprint check)
  // on a library thread when there is none. `source_blocks[i]` is where prompt block i, of our
  // block size, lies in the pool of each rank. Renews the lease until the transfer ends. Returns a
  // key for the calls below; `done` may be called before the caller has it. A key whose transfer
  // has ended is ignored by all calls.
  virtual std::uint64_t Begin(const TransferTicket& ticket, std::vector<std::int32_t> source_blocks,
                              DoneCallback done) = 0;
  // Layer `layer` of prompt blocks [first_block, last_block) is final in every rank's memory: send
  // it now. Every block of every layer is put; those that nobody will see through the layer's
  // window stay here.
  virtual void PutLayer(std::uint64_t key, int layer, int first_block, int last_block) = 0;
  // All layers were put; deliver the record after them.
  virtual void Complete(std::uint64_t key, HandoffRecord record) = 0;
  // Gives up; the receiver is told, and `done` is called with `why`.
  virtual void Abort(std::uint64_t key, absl::Status why) = 0;
};

// What a receiver knows of a completed transfer.
struct ReceiveReport {
  std::int64_t bytes = 0;
  absl::Time first_byte;
  absl::Time completed;
  std::string transport;
};

// The decode worker's end. Thread-safe.
class TransferReceiver {
 public:
  struct Options {
    std::string worker_id;
    std::uint64_t incarnation = 0;
    ModelFingerprint fingerprint;
    KvMemory memory;                              // Fits the fingerprint
    std::shared_ptr<PoolAccess> access;           // how to get at it; null: it is host memory
    std::shared_ptr<SideChannels> side_channels;  // from device to device; null: none
    std::string listen_address = "0.0.0.0:0";
    std::string advertise_host = "127.0.0.1";  // host that senders dial, with the port bound
    absl::Duration lease = absl::Seconds(10);
    // Of a reservation, however often its sender renews the lease.
    absl::Duration max_age = absl::Minutes(10);
    bool allow_shared_memory = true;
    TransferMetrics* metrics = nullptr;  // may be null; must outlive the receiver
  };
  struct Callbacks {
    // Exactly one of the two is called per reservation, on a library thread, unless Release comes
    // first. After either, nothing writes to its blocks any more.
    std::function<void(std::uint64_t transfer_id, const HandoffRecord&, const ReceiveReport&)>
        on_complete;  // every block that later rows see arrived in every layer, and the record
    std::function<void(std::uint64_t transfer_id, const absl::Status&)> on_failed;
  };
  //   kUnavailable  the address cannot be bound; names it
  static absl::StatusOr<std::unique_ptr<TransferReceiver>> Start(Options options,
                                                                 Callbacks callbacks,
                                                                 const Clock& clock);
  virtual ~TransferReceiver() = default;

  // Opens a reservation: `blocks[i]` receives prompt block i of our block size, in those layers
  // where a row after the prompt sees it; -1 where that is so in none. The caller keeps owning the
  // blocks and must not touch or free them until on_complete, on_failed or Release.
  virtual TransferTicket Reserve(std::vector<std::int32_t> blocks, int num_tokens) = 0;
  // Ends a reservation in any state: when it returns nothing writes to its blocks any more, late
  // frames are refused, and no callback of it will run. Waits for at most one frame's copy, or for
  // a callback of this transfer that is running now: hold no lock that the callbacks take. May be
  // called from a callback. Destroying the receiver releases all.
  virtual void Release(std::uint64_t transfer_id) = 0;
  virtual int port() const = 0;
};

}  // namespace baton::kvtransfer
