#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "gpu/nccl_status.h"
#include "kvtransfer/cuda/nccl_channel.h"

namespace baton::kvtransfer::cuda {
namespace {

// How often the thread looks at the device while something is under way there, and how long it
// sleeps at most otherwise.
constexpr absl::Duration kPoll = absl::Microseconds(100);
constexpr absl::Duration kLook = absl::Milliseconds(50);

// The sender's end: one thread that gives puts to the device and looks when they are done.
class NcclSender final : public SendSideChannel {
 public:
  NcclSender(NcclChannelOptions options, NcclShared& shared, Events events)
      : options_(std::move(options)),
        shared_(shared),
        events_(std::move(events)),
        rank_pairs_(PairsOf(options_.shape)),
        pairs_(options_, NcclPair::Role::kSender, shared_),
        member_(shared_.budget.Join([this] { asked_to_close_ = true; })),
        thread_([this] { Run(); }) {}

  ~NcclSender() override {
    Stop();
    if (thread_.joinable()) thread_.join();
    shared_.budget.Leave(member_);
  }

  bool TryPut(SidePut put) override {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return false;
    if (num_puts_ >= options_.max_puts) {
      blocked_ = true;
      return false;
    }
    ++num_puts_;
    queue_.push_back({.put = std::move(put), .notify = nullptr});
    woken_ = true;
    return true;
  }

  bool TryNotify(std::function<bool()> write) override {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return false;
    if (queue_.size() >= 4 * options_.max_puts) {
      blocked_ = true;
      return false;
    }
    queue_.push_back({.put = {}, .notify = std::move(write)});
    woken_ = true;
    return true;
  }

  void OnStreamWritable() override { Wake(); }

  void Stop() override {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
      woken_ = true;
    }
    if (std::this_thread::get_id() == thread_.get_id()) return;
    absl::MutexLock lock(&stop_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Item {
    SidePut put;
    std::function<bool()> notify;  // null: a put
  };
  struct UnderWay {
    std::uint64_t put_id = 0;
    std::size_t bytes = 0;
    std::vector<std::pair<const NcclPair*, std::uint64_t>> waits;  // until so many are completed
  };

  void Run() {
    absl::Status status;
    last_use_ = absl::Now();
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

  // One round of work.
  absl::Status Turn(bool* worked) {
    BATON_RETURN_IF_ERROR(pairs_.Poll());
    *worked = ReleaseCompleted();
    if (!opened_once_ || (pairs_.empty() && HasQueued())) {
      bool opened = false;
      BATON_RETURN_IF_ERROR(OpenPairs(&opened));
      *worked |= opened;
    }
    while (!outbox_.empty()) {
      if (!events_.write(outbox_.front())) return absl::OkStatus();
      outbox_.pop_front();
      *worked = true;
    }
    bool issued = false;
    BATON_RETURN_IF_ERROR(HandleFront(&issued));
    *worked |= issued;
    CloseIfIdle();
    return absl::OkStatus();
  }

  bool HasQueued() {
    absl::MutexLock lock(&mutex_);
    return !queue_.empty();
  }

  absl::Status OpenPairs(bool* opened) {
    if (wanted_since_ == absl::InfinitePast()) wanted_since_ = absl::Now();
    if (!shared_.budget.HasRoom(static_cast<int>(rank_pairs_.size()))) {
      if (absl::Now() - wanted_since_ < options_.pair.connect_timeout) {
        shared_.budget.MakeRoom();
        return absl::OkStatus();
      }
      return absl::ResourceExhaustedError(
          absl::StrFormat("no room for %d NCCL pairs: at most %d may be open, and none was idle",
                          rank_pairs_.size(), shared_.budget.max_pairs()));
    }
    for (const RankPair& ranks : rank_pairs_) {
      ncclUniqueId id;
      BATON_NCCL_RETURN_IF_ERROR(nullptr, ncclGetUniqueId(&id));
      BATON_RETURN_IF_ERROR(pairs_.Open(ranks, id));
      outbox_.push_back({.body = OpenPair{.source_rank = ranks.source,
                                          .destination_rank = ranks.destination,
                                          .id = std::string(id.internal, sizeof(id.internal))}});
    }
    wanted_since_ = absl::InfinitePast();
    opened_once_ = true;
    last_use_ = absl::Now();
    *opened = true;
    return absl::OkStatus();
  }

  absl::Status HandleFront(bool* handled) {
    Item item;
    {
      absl::MutexLock lock(&mutex_);
      if (queue_.empty() || stopped_) return absl::OkStatus();
      if (queue_.front().notify == nullptr && !CanIssue(queue_.front().put)) {
        return absl::OkStatus();
      }
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    absl::Status status;
    if (item.notify != nullptr) {
      *handled = item.notify();
    } else {
      status = Issue(item.put, handled);
    }
    if (*handled) return status;  // a put is under way now, even if that failed
    absl::MutexLock lock(&mutex_);
    queue_.push_front(std::move(item));
    return status;
  }

  bool CanIssue(const SidePut& put) const {
    if (pairs_.empty()) return false;
    for (const RankPair& ranks : rank_pairs_) {
      if (ranks.source == put.source_rank && !pairs_.Find(ranks)->ready()) return false;
    }
    return true;
  }

  absl::Status Issue(const SidePut& put, bool* issued) {
    const bool direct = GoesDirect(options_, put.source_rank);
    *issued = events_.write(
        {.transfer_id = put.transfer_id,
         .incarnation = put.incarnation,
         .body = AnnounceBlocks{.source_rank = put.source_rank,
                                .layer = put.layer,
                                .first_block = put.first_block,
                                .num_blocks = static_cast<std::int32_t>(put.blocks.size()),
                                .direct = direct}});
    if (!*issued) return absl::OkStatus();
    const DeviceRank& rank = options_.ranks[put.source_rank];
    UnderWay& under_way = under_way_.emplace_back();
    under_way.put_id = put.put_id;
    for (const RankPair& ranks : rank_pairs_) {
      if (ranks.source != put.source_rank) continue;
      const std::vector<Slice> slices = SlicesOf(options_.shape, ranks.source, ranks.destination);
      std::vector<ByteRun> runs;
      for (const std::int32_t block : put.blocks) {
        std::byte* const at = rank.layers[put.layer] + block * rank.block_bytes;
        for (const Slice& slice : slices) {
          runs.push_back({.at = at + slice.offset, .bytes = slice.bytes});
          under_way.bytes += slice.bytes;
        }
      }
      NcclPair* const pair = pairs_.Find(ranks);
      under_way.waits.emplace_back(pair, pair->num_given() + 1);
      BATON_RETURN_IF_ERROR(pair->Transfer(runs, direct));
    }
    last_use_ = absl::Now();
    shared_.budget.Used(member_);
    return absl::OkStatus();
  }

  // Puts are done in any order only if their pairs differ; they are released in the order given.
  bool ReleaseCompleted() {
    bool released = false;
    while (!under_way_.empty()) {
      const UnderWay& front = under_way_.front();
      const bool done = std::all_of(front.waits.begin(), front.waits.end(), [](const auto& wait) {
        return wait.first->num_completed() >= wait.second;
      });
      if (!done) break;
      if (shared_.metrics != nullptr) {
        shared_.metrics->bytes.Add(static_cast<double>(front.bytes));
      }
      const std::uint64_t put_id = front.put_id;
      under_way_.pop_front();
      last_use_ = absl::Now();
      Release(put_id);
      released = true;
    }
    return released;
  }

  void Release(std::uint64_t put_id) {
    events_.on_released(put_id);
    bool was_blocked = false;
    {
      absl::MutexLock lock(&mutex_);
      --num_puts_;
      was_blocked = std::exchange(blocked_, false);
    }
    if (was_blocked) events_.on_writable();
  }

  void CloseIfIdle() {
    if (pairs_.empty() || !under_way_.empty() || !outbox_.empty() || HasQueued()) {
      asked_to_close_ = false;
      return;
    }
    const bool tired = absl::Now() - last_use_ > options_.idle_timeout;
    if (!pairs_.AllConnected() || (!asked_to_close_ && !tired)) return;
    if (!events_.write({.body = ClosePairs{}})) return;
    pairs_.Finish();
    asked_to_close_ = false;
  }

  void WindDown(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
    }
    // First, so that the transfers fail while the device is being silenced.
    if (!status.ok()) events_.on_failed(Annotate(status, options_.peer));
    pairs_.Abort();
    std::deque<Item> left;
    {
      absl::MutexLock lock(&mutex_);
      left.swap(queue_);
    }
    for (const UnderWay& one : under_way_) events_.on_released(one.put_id);
    under_way_.clear();
    for (const Item& item : left) {
      if (item.notify == nullptr) events_.on_released(item.put.put_id);
    }
  }

  void Wake() {
    absl::MutexLock lock(&mutex_);
    woken_ = true;
  }

  const NcclChannelOptions options_;
  NcclShared& shared_;
  const Events events_;
  const std::vector<RankPair> rank_pairs_;

  // The thread's own.
  PairSet pairs_;
  std::deque<SideMessage> outbox_;  // bounded by the pairs
  std::deque<UnderWay> under_way_;  // bounded by max_puts
  bool opened_once_ = false;
  absl::Time wanted_since_ = absl::InfinitePast();
  absl::Time last_use_;

  std::atomic<bool> asked_to_close_{false};
  const PairBudget::Member member_;
  absl::Mutex stop_mutex_;  // of the join
  absl::Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  std::size_t num_puts_ ABSL_GUARDED_BY(mutex_) = 0;  // queued and under way
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

bool GoesDirect(const NcclChannelOptions& options, int source_rank) {
  for (int rank = 0; rank < options.shape.destination_ranks; ++rank) {
    for (const Slice& slice : SlicesOf(options.shape, source_rank, rank)) {
      if (slice.bytes < options.direct_min_bytes || slice.bytes > options.pair.max_message_bytes) {
        return false;
      }
    }
  }
  return true;
}

std::unique_ptr<SendSideChannel> MakeNcclSender(NcclChannelOptions options, NcclShared& shared,
                                                SendSideChannel::Events events) {
  return std::make_unique<NcclSender>(std::move(options), shared, std::move(events));
}

}  // namespace baton::kvtransfer::cuda
