#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gpu/nccl_reaper.h"
#include "kvtransfer/cuda/nccl_metrics.h"
#include "kvtransfer/cuda/nccl_pair.h"
#include "kvtransfer/cuda/pair_budget.h"
#include "kvtransfer/cuda/slices.h"
#include "kvtransfer/side_channel.h"

namespace baton::kvtransfer::cuda {

// A rank's pool on its device.
struct DeviceRank {
  int device = 0;
  std::vector<std::byte*> layers;
  std::size_t block_bytes = 0;
};

// What the channels of one worker share. Must outlive them.
struct NcclShared {
  NcclShared(gpu::NcclReaper::Options reaper_options, int max_pairs, NcclMetrics* metrics_or_null)
      : reaper(std::move(reaper_options)), budget(max_pairs), metrics(metrics_or_null) {}
  gpu::NcclReaper reaper;
  PairBudget budget;
  PairResourceCache resources;
  NcclMetrics* metrics;  // may be null
};

struct NcclChannelOptions {
  std::string peer;  // for messages
  SliceShape shape;
  std::vector<DeviceRank> ranks;  // our own
  NcclPair::Options pair;         // device aside
  // Slices of at least this size travel from pool to pool, smaller ones through staging memory.
  std::size_t direct_min_bytes = 128 << 10;
  std::size_t max_puts = 16;  // waiting and under way; the bound of each queue
  absl::Duration idle_timeout = absl::Minutes(5);
};

// Whether blocks of `source_rank` travel slice by slice from pool to pool.
bool GoesDirect(const NcclChannelOptions& options, int source_rank);

// The pairs of one link, by ranks, and what their messages look like. Not thread-safe.
class PairSet {
 public:
  PairSet(const NcclChannelOptions& options, NcclPair::Role role, NcclShared& shared)
      : options_(options), role_(role), shared_(shared) {}
  ~PairSet();

  // Starts a pair. kResourceExhausted: too many are open.
  absl::Status Open(RankPair ranks, const ncclUniqueId& id);
  NcclPair* Find(RankPair ranks) const;  // null: not open
  bool empty() const { return pairs_.empty(); }
  std::size_t size() const { return pairs_.size(); }
  bool AllConnected() const;
  absl::Status Poll();

  // Ends all pairs; when they return nothing of theirs runs on the devices.
  void Abort();
  void Finish();

 private:
  std::vector<gpu::Doomed> TakeForReaper();
  void Forget();
  const NcclChannelOptions& options_;
  const NcclPair::Role role_;
  NcclShared& shared_;
  std::map<RankPair, std::unique_ptr<NcclPair>> pairs_;
  std::size_t counted_bytes_ = 0;  // in the metrics
};

// Makes the ends of channels. `shared` must outlive them.
std::unique_ptr<SendSideChannel> MakeNcclSender(NcclChannelOptions options, NcclShared& shared,
                                                SendSideChannel::Events events);
std::unique_ptr<ReceiveSideChannel> MakeNcclReceiver(NcclChannelOptions options, NcclShared& shared,
                                                     ReceiveSideChannel::Events events);

}  // namespace baton::kvtransfer::cuda
