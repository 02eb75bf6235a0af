#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "kvtransfer/cuda/nccl_channel.h"

namespace baton::kvtransfer::cuda {
namespace {

constexpr absl::Duration kPoll = absl::Microseconds(100);  // while something is under way
constexpr absl::Duration kLook = absl::Milliseconds(50);

// The receiver's end: one thread that posts what the sender announces, in that order, and tells
// what has landed. What nobody wants any more is received too, and dropped: the sender's messages
// are on their way, and the next one must meet the next receive.
class NcclReceiver final : public ReceiveSideChannel {
 public:
  NcclReceiver(NcclChannelOptions options, NcclShared& shared, Events events)
      : options_(std::move(options)),
        shared_(shared),
        events_(std::move(events)),
        rank_pairs_(PairsOf(options_.shape)),
        pairs_(options_, NcclPair::Role::kReceiver, shared_),
        thread_([this] { Run(); }) {}

  ~NcclReceiver() override {
    Stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status OnMessage(const SideMessage& message) override {
    BATON_RETURN_IF_ERROR(Check(message));
    return Push({.message = message, .then = nullptr});
  }
  absl::Status AfterLanding(std::function<void()> then) override {
    return Push({.message = {}, .then = std::move(then)});
  }

  void Lose() override {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    woken_ = true;
  }

  void Stop() override {
    Lose();
    if (std::this_thread::get_id() == thread_.get_id()) return;
    absl::MutexLock lock(&stop_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Item {
    SideMessage message;
    std::function<void()> then;  // null: a message
  };
  struct UnderWay {
    SideMessage announcement;
    std::vector<bool> granted;
    std::size_t bytes = 0;
    std::vector<std::pair<const NcclPair*, std::uint64_t>> waits;
  };

  absl::Status Push(Item item) {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return absl::OkStatus();
    // A sender keeps max_puts under way, and a few messages for each transfer.
    if (queue_.size() >= 64 * options_.max_puts) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "peer announces more KV blocks than it may: %d messages wait", queue_.size()));
    }
    queue_.push_back(std::move(item));
    woken_ = true;
    return absl::OkStatus();
  }

  absl::Status Check(const SideMessage& message) const {
    if (const auto* open = std::get_if<OpenPair>(&message.body)) {
      const bool known =
          std::find(rank_pairs_.begin(), rank_pairs_.end(),
                    RankPair{open->source_rank, open->destination_rank}) != rank_pairs_.end();
      if (known && open->id.size() == sizeof(ncclUniqueId)) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrFormat("peer opens an NCCL pair that is none: ranks %d and %d, id of %d bytes",
                          open->source_rank, open->destination_rank, open->id.size()));
    }
    const auto* announced = std::get_if<AnnounceBlocks>(&message.body);
    if (announced == nullptr) return absl::OkStatus();
    const int num_layers = static_cast<int>(options_.ranks[0].layers.size());
    if (announced->source_rank < 0 || announced->source_rank >= options_.shape.source_ranks ||
        announced->layer < 0 || announced->layer >= num_layers || announced->first_block < 0 ||
        announced->num_blocks <= 0 || announced->num_blocks > (1 << 16)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "peer announces KV blocks that cannot be: rank %d, layer %d, %d blocks from %d on",
          announced->source_rank, announced->layer, announced->num_blocks, announced->first_block));
    }
    return absl::OkStatus();
  }

  void Run() {
    absl::Status status;
    while (status.ok()) {
      bool worked = false;
      status = Turn(&worked);
      const bool polls = !under_way_.empty() || !pairs_.AllConnected();
      absl::MutexLock lock(&mutex_);
      if (stopped_) break;
      if (worked || !status.ok()) continue;
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_; };
      mutex_.AwaitWithTimeout(absl::Condition(&due), polls ? kPoll : kLook);
      woken_ = false;
    }
    WindDown(status);
  }

  absl::Status Turn(bool* worked) {
    BATON_RETURN_IF_ERROR(pairs_.Poll());
    *worked = TellLanded();
    Item item;
    {
      absl::MutexLock lock(&mutex_);
      if (queue_.empty() || stopped_ || !CanHandle(queue_.front())) return absl::OkStatus();
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    *worked = true;
    if (item.then != nullptr) {
      item.then();
      return absl::OkStatus();
    }
    if (const auto* open = std::get_if<OpenPair>(&item.message.body)) {
      ncclUniqueId id;
      std::memcpy(id.internal, open->id.data(), sizeof(id.internal));
      const RankPair ranks{open->source_rank, open->destination_rank};
      if (pairs_.Find(ranks) != nullptr) {
        return absl::FailedPreconditionError("peer opens an NCCL pair twice");
      }
      return pairs_.Open(ranks, id);
    }
    if (std::holds_alternative<ClosePairs>(item.message.body)) {
      pairs_.Finish();
      return absl::OkStatus();
    }
    return Post(item.message);
  }

  // Whether the front's turn has come. An announcement without its pairs is an error that Post
  // tells.
  bool CanHandle(const Item& item) const {
    const auto* announced = std::get_if<AnnounceBlocks>(&item.message.body);
    if (item.then != nullptr || std::holds_alternative<ClosePairs>(item.message.body)) {
      return under_way_.empty();
    }
    if (announced == nullptr) return true;
    for (const RankPair& ranks : rank_pairs_) {
      if (ranks.source != announced->source_rank) continue;
      const NcclPair* const pair = pairs_.Find(ranks);
      if (pair != nullptr && !pair->ready()) return false;
    }
    return true;
  }

  absl::Status Post(const SideMessage& message) {
    const auto& announced = std::get<AnnounceBlocks>(message.body);
    std::vector<ClaimedBlock> blocks = events_.claim(message);
    blocks.resize(announced.num_blocks);
    UnderWay& under_way = under_way_.emplace_back();
    under_way.announcement = message;
    for (const ClaimedBlock& block : blocks) under_way.granted.push_back(block.granted);
    for (const RankPair& ranks : rank_pairs_) {
      if (ranks.source != announced.source_rank) continue;
      NcclPair* const pair = pairs_.Find(ranks);
      if (pair == nullptr) {
        return absl::FailedPreconditionError("peer announces KV blocks before it opened the pairs");
      }
      std::vector<ByteRun> runs;
      BATON_RETURN_IF_ERROR(PlaceBlocks(ranks, blocks, announced.direct, &runs));
      for (const ByteRun& run : runs) under_way.bytes += run.bytes;
      under_way.waits.emplace_back(pair, pair->num_given() + 1);
      BATON_RETURN_IF_ERROR(CheckSize(runs, announced.direct));
      BATON_RETURN_IF_ERROR(pair->Transfer(runs, announced.direct));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSize(const std::vector<ByteRun>& runs, bool direct) const {
    std::size_t total = 0;
    for (const ByteRun& run : runs) total = direct ? std::max(total, run.bytes) : total + run.bytes;
    if (total <= options_.pair.max_message_bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("peer announces a message of %d bytes, at most %d fit", total,
                        options_.pair.max_message_bytes));
  }

  // The runs of a message, as the sender has them. In staging memory a slice may be cut further.
  absl::Status PlaceBlocks(RankPair ranks, const std::vector<ClaimedBlock>& blocks, bool direct,
                           std::vector<ByteRun>* runs) const {
    const std::vector<Slice> slices = SlicesOf(options_.shape, ranks.source, ranks.destination);
    for (const ClaimedBlock& block : blocks) {
      for (const Slice& slice : slices) {
        const std::size_t before = runs->size();
        for (std::size_t at = slice.offset; at < slice.offset + slice.bytes;) {
          runs->push_back(RunAt(block, ranks.destination, at, slice.offset + slice.bytes));
          at += runs->back().bytes;
        }
        if (direct && runs->size() != before + 1) {
          return absl::InternalError("a slice that travels from pool to pool is placed in parts");
        }
      }
    }
    return absl::OkStatus();
  }

  // What begins at offset `at` of a block and lies together, ending at `end` at the latest.
  static ByteRun RunAt(const ClaimedBlock& block, int destination_rank, std::size_t at,
                       std::size_t end) {
    ByteRun gap{.at = nullptr, .bytes = end - at};
    if (!block.granted) return gap;
    for (const Placement& placement : block.placements) {
      if (placement.destination_rank != destination_rank) continue;
      if (placement.source_offset <= at && at < placement.source_offset + placement.bytes) {
        return {.at = placement.to + (at - placement.source_offset),
                .bytes = std::min(end, placement.source_offset + placement.bytes) - at};
      }
      if (placement.source_offset > at) {
        gap.bytes = std::min(gap.bytes, placement.source_offset - at);
      }
    }
    return gap;
  }

  bool TellLanded() {
    bool told = false;
    while (!under_way_.empty()) {
      const UnderWay& front = under_way_.front();
      const bool done = std::all_of(front.waits.begin(), front.waits.end(), [](const auto& wait) {
        return wait.first->num_completed() >= wait.second;
      });
      if (!done) break;
      if (shared_.metrics != nullptr) {
        shared_.metrics->bytes.Add(static_cast<double>(front.bytes));
      }
      Tell(front, absl::OkStatus());
      under_way_.pop_front();
      told = true;
    }
    return told;
  }

  void Tell(const UnderWay& one, const absl::Status& status) {
    for (std::size_t i = 0; i < one.granted.size(); ++i) {
      if (one.granted[i]) events_.landed(one.announcement, static_cast<int>(i), status);
    }
  }

  void WindDown(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
      queue_.clear();
    }
    if (!status.ok()) events_.on_failed(Annotate(status, options_.peer));
    pairs_.Abort();
    for (const UnderWay& one : under_way_) {
      Tell(one, absl::UnavailableError("the link broke while the block was on its way"));
    }
    under_way_.clear();
  }

  const NcclChannelOptions options_;
  NcclShared& shared_;
  const Events events_;
  const std::vector<RankPair> rank_pairs_;

  // The thread's own.
  PairSet pairs_;
  std::deque<UnderWay> under_way_;  // bounded by what the pairs take

  absl::Mutex stop_mutex_;  // of the join
  absl::Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ReceiveSideChannel> MakeNcclReceiver(NcclChannelOptions options, NcclShared& shared,
                                                     ReceiveSideChannel::Events events) {
  return std::make_unique<NcclReceiver>(std::move(options), shared, std::move(events));
}

}  // namespace baton::kvtransfer::cuda
