// Both cores against each other over a link that misbehaves, under a clock that the test drives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensor_parallel.h"
#include "kvtransfer/crc32c.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/send_table.h"
#include "tests/support/fake_clock.h"

namespace baton::kvtransfer {
namespace {

constexpr int kPoolBlocks = 24;

// Rows (one head and token, K or V) in the order of ranks, layers and tokens.
using Rows = std::vector<std::uint8_t>;

// Tokens of each layer.
using TokenRanges = std::vector<std::pair<int, int>>;

// The pools of a group: bytes by (rank, layer, block), and which blocks are free.
class Pool {
 public:
  Pool(const ModelFingerprint& model, const KvCut& cut) : model_(model), cut_(cut) {
    for (int rank = 0; rank < cut.tensor_parallel_size; ++rank) {
      ranks_.emplace_back(model.num_layers, Rows(kPoolBlocks * block_bytes(rank)));
    }
    for (int block = 0; block < kPoolBlocks; ++block) free.push_back(block);
  }
  std::size_t block_bytes(int rank) const { return BlockBytes(model_, cut_, rank); }
  std::uint8_t* at(int rank, int layer, int block) {
    return &ranks_[rank][layer][block * block_bytes(rank)];
  }
  void Fill(const std::vector<std::int32_t>& blocks, std::mt19937& random) {
    for (int rank = 0; rank < cut_.tensor_parallel_size; ++rank) {
      for (int layer = 0; layer < model_.num_layers; ++layer) {
        for (const int block : blocks) {
          if (block < 0) continue;
          std::uint8_t* const bytes = at(rank, layer, block);
          for (std::size_t i = 0; i < block_bytes(rank); ++i) {
            bytes[i] = static_cast<std::uint8_t>(random());
          }
        }
      }
    }
  }
  // Appends the rows of `head` that `rank` holds of tokens [first, last) of a prompt in `blocks`.
  void AppendRows(int rank, int layer, int head, int first, int last,
                  const std::vector<std::int32_t>& blocks, Rows* rows) {
    const IndexRange heads = KvHeadsOfRank(model_.num_kv_heads, cut_.tensor_parallel_size, rank);
    const std::size_t bytes = block_bytes(rank) / (2 * heads.size() * cut_.block_size);
    for (int token = first; token < last; ++token) {
      const int block = blocks[token / cut_.block_size];
      if (block < 0) continue;
      for (int half = 0; half < 2; ++half) {
        const int row =
            (half * heads.size() + head - heads.begin) * cut_.block_size + token % cut_.block_size;
        const std::uint8_t* const from = at(rank, layer, block) + row * bytes;
        rows->insert(rows->end(), from, from + bytes);
      }
    }
  }
  std::vector<std::int32_t> Take(int count, std::mt19937& random) {
    std::shuffle(free.begin(), free.end(), random);
    std::vector<std::int32_t> taken(free.end() - count, free.end());
    free.resize(free.size() - count);
    return taken;
  }
  void Give(const std::vector<std::int32_t>& blocks) {
    std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(free),
                 [](std::int32_t block) { return block >= 0; });
  }

  std::vector<std::int32_t> free;

 private:
  const ModelFingerprint& model_;
  const KvCut& cut_;
  std::vector<std::vector<Rows>> ranks_;  // [ranks][layers]
};

// What a test knows of one transfer from outside.
struct Story {
  TransferTicket ticket;
  std::uint64_t receiver_life = 0;
  std::uint64_t sender_life = 0;
  std::uint64_t key = 0;
  std::vector<std::int32_t> source_blocks;
  TokenRanges moved;
  Rows expected;   // what moves, as each rank of the destination has it
  Rows untouched;  // what lies at the destination of the rest
  std::int64_t sent_bytes = 0;
  int next_layer = 0;
  bool completed_by_owner = false;
  int sender_outcomes = 0;
  int receiver_outcomes = 0;
  bool sender_ok = false;
  bool receiver_ok = false;
  bool released = false;
};

// A frame under way: a control frame's bytes, or a put whose bytes are read when it leaves.
struct WireFrame {
  std::string control;
  std::optional<OutgoingPut> put;
  bool counts = true;  // its put is to be released when it has left; false for copies
};

struct Faults {
  int percent = 0;  // of deliveries that go wrong
  bool break_links = false;
  bool kill_workers = false;
  bool cancels = false;
};

class World {
 public:
  World(unsigned seed, Faults faults)
      : random_(seed),
        faults_(faults),
        source_cut_{.block_size = 3, .tensor_parallel_size = 1 + static_cast<int>(random_() % 4)},
        destination_cut_(RandomCut()),
        model_(RandomModel()),
        checksum_(random_() % 2 == 0),
        source_(model_, source_cut_),
        destination_(model_, destination_cut_) {
    StartSender();
    StartReceiver();
  }

  void Run() {
    for (int step = 0; step < 400; ++step) Step();
    faults_ = {};
    for (int round = 0; round < 60; ++round) {
      for (int i = 0; i < 200 && Pump(); ++i) {
      }
      clock_.Advance(absl::Seconds(2));
      Tick();
    }
  }

  void ExpectBalance() {
    EXPECT_EQ(sender_->num_transfers(), 0u);
    EXPECT_EQ(sender_->num_puts(), 0u);
    EXPECT_EQ(receiver_->num_reservations(), 0u);
    EXPECT_EQ(source_.free.size(), static_cast<std::size_t>(kPoolBlocks));
    EXPECT_EQ(destination_.free.size(), static_cast<std::size_t>(kPoolBlocks));
    for (const Story& story : stories_) {
      SCOPED_TRACE(absl::StrCat("transfer ", story.ticket.transfer_id));
      EXPECT_EQ(story.sender_outcomes, 1);
      EXPECT_EQ(story.receiver_outcomes, story.released ? 0 : 1);
      // The receiver decides: what the sender believes arrived did arrive.
      EXPECT_TRUE(!story.sender_ok || story.receiver_ok || story.released);
    }
  }
  int num_ok() const {
    return static_cast<int>(std::count_if(stories_.begin(), stories_.end(),
                                          [](const Story& s) { return s.sender_ok; }));
  }
  int num_stories() const { return static_cast<int>(stories_.size()); }
  int num_skipped() const { return num_skipped_; }

 private:
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  // Half of the worlds have equal cuts.
  KvCut RandomCut() {
    if (Chance(50)) return source_cut_;
    KvCut cut{.block_size = 3 << (random_() % 3),
              .tensor_parallel_size = 1 + static_cast<int>(random_() % 4)};
    if (Chance(50)) std::swap(cut, source_cut_);
    return cut;
  }
  ModelFingerprint RandomModel() {
    ModelFingerprint model{.model = "m",
                           .compute = "f32",
                           .kv_dtype = "f32",
                           .num_layers = 1 + static_cast<int>(random_() % 3),
                           .num_kv_heads = 1 + static_cast<int>(random_() % 4),
                           .head_dim = 1,
                           .windows = {}};
    if (Chance(50)) return model;
    for (int i = 0; i < model.num_layers; ++i) {
      model.windows.push_back(static_cast<int>(random_() % 12));
    }
    return model;
  }
  std::size_t LargestSourceBlock() const {
    std::size_t bytes = 0;
    for (int rank = 0; rank < source_cut_.tensor_parallel_size; ++rank) {
      bytes = std::max(bytes, source_.block_bytes(rank));
    }
    return bytes;
  }
  // What the rows after the prompt see, rounded to the smaller blocks.
  TokenRanges MovedTokens(int num_tokens) const {
    const int grain = std::min(source_cut_.block_size, destination_cut_.block_size);
    TokenRanges moved;
    for (int layer = 0; layer < model_.num_layers; ++layer) {
      const int first = model_.FirstVisibleToken(layer, num_tokens);
      moved.emplace_back(first / grain * grain, (num_tokens + grain - 1) / grain * grain);
    }
    return moved;
  }
  // What each rank of the destination should get: the rows of the first source rank that has them.
  Rows ReadSource(const std::vector<std::int32_t>& blocks, const TokenRanges& moved) {
    Rows rows;
    ForEachHeldHead([&](int, int layer, int head) {
      int rank = 0;
      while (!KvHeadsOfRank(model_.num_kv_heads, source_cut_.tensor_parallel_size, rank)
                  .contains(head)) {
        ++rank;
      }
      source_.AppendRows(rank, layer, head, moved[layer].first, moved[layer].second, blocks, &rows);
    });
    return rows;
  }
  // What it has of it, or of all else in the prompt's blocks.
  Rows ReadDestination(const std::vector<std::int32_t>& blocks, const TokenRanges& moved,
                       bool of_moved) {
    Rows rows;
    const int all = static_cast<int>(blocks.size()) * destination_cut_.block_size;
    ForEachHeldHead([&](int rank, int layer, int head) {
      const auto [first, last] = moved[layer];
      if (of_moved) {
        destination_.AppendRows(rank, layer, head, first, last, blocks, &rows);
      } else {
        destination_.AppendRows(rank, layer, head, 0, std::min(first, all), blocks, &rows);
        destination_.AppendRows(rank, layer, head, last, all, blocks, &rows);
      }
    });
    return rows;
  }
  template <class Visit>
  void ForEachHeldHead(const Visit& visit) const {
    for (int rank = 0; rank < destination_cut_.tensor_parallel_size; ++rank) {
      const IndexRange heads =
          KvHeadsOfRank(model_.num_kv_heads, destination_cut_.tensor_parallel_size, rank);
      for (int layer = 0; layer < model_.num_layers; ++layer) {
        for (int head = heads.begin; head < heads.end; ++head) visit(rank, layer, head);
      }
    }
  }
  void StartSender() {
    ++sender_life_;
    sender_ = std::make_unique<SendTable>(
        SendTable::Options{.fingerprint = model_,
                           .cut = source_cut_,
                           .num_blocks = kPoolBlocks,
                           .max_frame_bytes = LargestSourceBlock() * (1 + random_() % 4),
                           .checksum = checksum_});
  }
  void StartReceiver() {
    ++receiver_life_;
    receiver_ = std::make_unique<ReceiveTable>(
        ReceiveTable::Options{.worker_id = "d",
                              .incarnation = 1000 + receiver_life_,
                              .fingerprint = model_,
                              .cut = destination_cut_,
                              .limits = {.lease = absl::Seconds(6), .max_age = absl::Seconds(90)}});
  }

  void Step() {
    switch (random_() % 12) {
      case 0:
        BeginOne();
        break;
      case 1:
      case 2:
      case 3:
        ComputeOne();
        break;
      case 4:
        clock_.Advance(absl::Milliseconds(random_() % 1500));
        Tick();
        break;
      case 5:
        if (faults_.cancels && Chance(25)) CancelOne();
        break;
      case 6:
        if (faults_.break_links && Chance(20)) BreakLinks(absl::UnavailableError("cable cut"));
        if (faults_.kill_workers && Chance(10)) KillOne();
        break;
      default:
        Pump();
    }
    Collect();
  }

  void BeginOne() {
    const int num_tokens = 1 + static_cast<int>(random_() % 15);
    const int num_source = source_cut_.BlocksFor(num_tokens);
    const int num_destination = destination_cut_.BlocksFor(num_tokens);
    if (static_cast<int>(source_.free.size()) < num_source ||
        static_cast<int>(destination_.free.size()) < num_destination) {
      return;
    }
    Story story;
    story.source_blocks = source_.Take(num_source, random_);
    source_.Fill(story.source_blocks, random_);
    story.moved = MovedTokens(num_tokens);
    story.expected = ReadSource(story.source_blocks, story.moved);
    const TransferPlan plan(model_, source_cut_, destination_cut_);
    const TransferShape shape = plan.ShapeOf(num_tokens);
    for (int rank = 0; rank < source_cut_.tensor_parallel_size; ++rank) {
      if (!shape.sends[rank]) continue;
      for (const int first : shape.first_blocks) {
        story.sent_bytes +=
            (shape.num_blocks - first) * static_cast<std::int64_t>(plan.source_block_bytes(rank));
      }
    }
    for (const int first : shape.first_blocks) num_skipped_ += first;
    // Blocks that no layer needs have no destination.
    const int num_holes = model_.FirstVisibleToken(num_tokens) / destination_cut_.block_size;
    std::vector<std::int32_t> to(num_holes, -1);
    const std::vector<std::int32_t> taken = destination_.Take(num_destination - num_holes, random_);
    to.insert(to.end(), taken.begin(), taken.end());
    story.untouched = ReadDestination(to, story.moved, false);
    story.ticket = receiver_->Reserve(std::move(to), num_tokens, clock_.Now());
    story.ticket.address = "d:1";
    story.receiver_life = receiver_life_;
    story.sender_life = sender_life_;
    story.key = sender_->Begin(story.ticket, story.source_blocks, clock_.Now());
    stories_.push_back(std::move(story));
  }

  void ComputeOne() {
    if (stories_.empty()) return;
    Story& story =
        stories_[stories_.size() - 1 - random_() % std::min<std::size_t>(4, stories_.size())];
    if (story.sender_life != sender_life_ || story.sender_outcomes > 0) return;
    const int count = static_cast<int>(story.source_blocks.size());
    if (story.next_layer < model_.num_layers) {
      const int cut = static_cast<int>(random_() % (count + 1));
      sender_->Put(story.key, story.next_layer, 0, cut, clock_.Now());
      sender_->Put(story.key, story.next_layer, cut, count, clock_.Now());
      ++story.next_layer;
    } else if (!story.completed_by_owner) {
      story.completed_by_owner = true;
      sender_->Complete(story.key, RecordOf(story), clock_.Now());
    }
  }

  static HandoffRecord RecordOf(const Story& story) {
    HandoffRecord record;
    record.first_token.token = static_cast<std::int32_t>(story.ticket.transfer_id * 7);
    return record;
  }

  void CancelOne() {
    if (stories_.empty()) return;
    Story& story = stories_[random_() % stories_.size()];
    if (Chance(50)) {
      if (story.sender_life == sender_life_) {
        sender_->Abort(story.key, absl::CancelledError("client gone"), clock_.Now());
      }
    } else if (story.receiver_life == receiver_life_ && story.receiver_outcomes == 0 &&
               !story.released) {
      ReleaseStory(story);
    }
  }
  void ReleaseStory(Story& story) {
    receiver_->Release(story.ticket.transfer_id);
    story.released = true;
    if (receiver_->num_copying(story.ticket.transfer_id) == 0) {
      GiveBack(story);
    } else {
      waiting_release_ = &story - stories_.data();
    }
  }
  void GiveBack(const Story& story) {
    destination_.Give(story.ticket.blocks);
    destination_.Fill(story.ticket.blocks, random_);
  }

  void Tick() {
    sender_->OnTick(clock_.Now());
    receiver_->OnTick(clock_.Now());
    Collect();
  }

  void KillOne() {
    if (Chance(50)) {
      BreakLinks(absl::UnavailableError("sender died"));
      for (Story& story : stories_) {
        if (story.sender_life == sender_life_ && story.sender_outcomes == 0) {
          story.sender_outcomes = 1;  // nobody is left to tell
          source_.Give(story.source_blocks);
        }
      }
      StartSender();
    } else {
      BreakLinks(absl::UnavailableError("receiver died"));
      Collect();
      for (Story& story : stories_) {
        if (story.receiver_life == receiver_life_ && story.receiver_outcomes == 0 &&
            !story.released) {
          story.receiver_outcomes = 1;
          GiveBack(story);
        }
      }
      StartReceiver();
    }
  }

  void BreakLinks(const absl::Status& why) {
    const auto links = up_;
    for (const LinkId link : links) BreakOne(link, why);
  }
  void BreakOne(LinkId link, const absl::Status& why) {
    std::erase(up_, link);
    sender_->OnLinkDown(link, why, clock_.Now());
    receiver_->OnLinkDown(Receiving(link), why);
    for (WireFrame& frame : forward_[link]) ReleasePut(frame);
    forward_.erase(link);
    backward_.erase(link);
  }
  // Links of different sender lives have the same ids; the receiver knows them apart.
  LinkId Receiving(LinkId link) const { return sender_life_ * 1'000'000 + link; }

  void ReleasePut(WireFrame& frame) {
    if (frame.put.has_value() && frame.counts) sender_->OnReleased(frame.put->put_id, clock_.Now());
  }

  // One unit of work on the links. False when there was none.
  bool Pump() {
    for (LinkAction& action : sender_->TakeLinkActions()) {
      if (auto* open = std::get_if<OpenLink>(&action)) Connect(*open);
      if (auto* broken = std::get_if<BreakLink>(&action)) BreakOne(broken->link, broken->why);
    }
    bool worked = false;
    const auto links = up_;
    for (const LinkId link : links) {
      if (auto outgoing = sender_->Next(link, clock_.Now())) {
        worked = true;
        if (Chance(faults_.percent)) {
          sender_->TakeBack(link, *outgoing, clock_.Now());  // the transport is full
        } else {
          Send(link, *outgoing);
        }
      }
      if (Deliver(link)) worked = true;
      if (DeliverReply(link)) worked = true;
    }
    Collect();
    return worked;
  }

  void Connect(const OpenLink& open) {
    Hello hello{.worker_id = "p",
                .incarnation = sender_life_,
                .expected_worker_id = open.peer.worker_id,
                .expected_incarnation = open.peer.incarnation,
                .fingerprint = model_,
                .cut = source_cut_,
                .host = {},
                .ring = {}};
    if (faults_.percent > 0 && Chance(10)) return;  // never answers: the connect deadline runs
    if (absl::Status status = receiver_->CheckHello(hello); !status.ok()) {
      sender_->OnLinkDown(open.link, status, clock_.Now());
      return;
    }
    receiver_->OnLinkUp(Receiving(open.link), hello, "test");
    sender_->OnLinkUp(open.link, "test", clock_.Now());
    up_.push_back(open.link);
  }

  void Send(LinkId link, const Outgoing& outgoing) {
    WireFrame frame;
    if (const auto* put = std::get_if<OutgoingPut>(&outgoing.frame)) {
      frame.put = *put;
    } else {
      frame.control = EncodeMessage(std::get<OutgoingMessage>(outgoing.frame).message);
    }
    sender_->Accepted(outgoing, clock_.Now());
    forward_[link].push_back(std::move(frame));
  }

  bool Deliver(LinkId link) {
    auto& queue = forward_[link];
    if (queue.empty()) return false;
    if (queue.size() > 1 && Chance(faults_.percent)) {  // overtaken
      std::swap(queue.front(), queue[random_() % queue.size()]);
    }
    WireFrame frame = std::move(queue.front());
    queue.pop_front();
    if (Chance(faults_.percent)) {  // comes again later
      WireFrame copy = frame;
      copy.counts = false;
      queue.insert(queue.begin() + random_() % (queue.size() + 1), std::move(copy));
    }
    if (!frame.counts && !StillReadable(frame)) return true;
    if (!Chance(faults_.percent)) {  // else lost
      if (frame.put.has_value()) {
        DeliverPut(link, *frame.put);
      } else {
        DeliverControl(link, frame.control);
      }
    }
    // The link may be gone, but this frame is no longer among those it released.
    ReleasePut(frame);
    return true;
  }

  // A repeated put carries what it carried the first time only while its source is unchanged.
  bool StillReadable(const WireFrame& frame) const {
    if (!frame.put.has_value()) return true;
    return std::any_of(stories_.begin(), stories_.end(), [&](const Story& story) {
      return story.sender_outcomes == 0 && story.sender_life == sender_life_ &&
             story.ticket.transfer_id == frame.put->header.transfer_id &&
             story.ticket.incarnation == frame.put->header.incarnation;
    });
  }

  void DeliverControl(LinkId link, std::string bytes) {
    if (Chance(faults_.percent)) bytes.resize(random_() % bytes.size());
    if (!bytes.empty() && Chance(faults_.percent)) bytes[random_() % bytes.size()] ^= 4;
    const std::span<const std::byte> span(reinterpret_cast<const std::byte*>(bytes.data()),
                                          bytes.size());
    auto header = DecodeFrameHeader(span);
    auto message = header.ok() ? DecodeMessage(*header, span.subspan(kFrameHeaderBytes))
                               : absl::StatusOr<Message>(header.status());
    if (!message.ok()) {
      BreakOne(link, message.status());
      return;
    }
    if (Chance(faults_.percent)) message->incarnation ^= 1;
    // A record that is given to another's transfer would need a peer that lies: headers have a
    // checksum. Anything else may hit a living transfer.
    const bool is_finish = std::holds_alternative<FinishTransfer>(message->body);
    if (Chance(faults_.percent)) message->transfer_id += is_finish ? 1'000'000 : 1 + random_() % 3;
    receiver_->OnMessage(Receiving(link), *message, clock_.Now());
  }

  void DeliverPut(LinkId link, const OutgoingPut& put) {
    DataHeader header = put.header;
    const std::uint32_t identity = checksum_ ? 1 : 0;
    if (Chance(faults_.percent)) header.incarnation ^= 1;
    // Without checksums only an id that nobody has is noticed.
    if (Chance(faults_.percent)) header.transfer_id += checksum_ ? 1 : 1'000'000;
    const int num_ranks = source_cut_.tensor_parallel_size;
    if (const int rank = static_cast<int>(random_() % num_ranks);
        checksum_ && Chance(faults_.percent) &&
        source_.block_bytes(rank) == source_.block_bytes(header.rank)) {
      header.rank = static_cast<std::uint16_t>(rank);
    }
    for (int index = 0; index < header.num_blocks; ++index) {
      std::vector<BlockCopy> copies;
      if (!receiver_->StartCopy(Receiving(link), header, index, clock_.Now(), &copies).ok()) {
        continue;
      }
      if (Chance(faults_.percent)) Interrupt(link);
      const std::uint8_t* const from = source_.at(put.header.rank, header.layer, put.blocks[index]);
      Rows bytes(from, from + source_.block_bytes(put.header.rank));
      const std::uint32_t sent =
          Crc32c(BlockChecksumSeed(put.header, index), bytes.data(), bytes.size());
      if (identity != 0 && Chance(faults_.percent)) bytes[random_() % bytes.size()] ^= 1;
      const std::uint32_t came =
          Crc32c(BlockChecksumSeed(header, index), bytes.data(), bytes.size());
      for (const BlockCopy& copy : copies) {
        std::memcpy(destination_.at(copy.destination_rank, header.layer, copy.destination_block) +
                        copy.destination_offset,
                    &bytes[copy.source_offset], copy.bytes);
      }
      receiver_->FinishCopy(
          header, index,
          identity == 0 || sent == came ? absl::OkStatus() : absl::DataLossError("damaged"));
      FinishWaitingRelease();
      Collect();
    }
  }

  // Something happens while a block is being written.
  void Interrupt(LinkId link) {
    switch (random_() % 3) {
      case 0:
        CancelOne();
        break;
      case 1:
        receiver_->OnTick(clock_.Now() + absl::Seconds(100));
        break;
      default:
        receiver_->OnLinkDown(Receiving(link), absl::UnavailableError("cut in the middle"));
    }
    Collect();
  }
  void FinishWaitingRelease() {
    if (!waiting_release_.has_value()) return;
    const Story& story = stories_[*waiting_release_];
    ASSERT_EQ(receiver_->num_copying(story.ticket.transfer_id), 0);
    GiveBack(story);
    waiting_release_.reset();
  }

  bool DeliverReply(LinkId link) {
    auto& queue = backward_[link];
    if (queue.empty()) return false;
    const Message message = queue.front();
    queue.pop_front();
    if (!Chance(faults_.percent)) sender_->OnMessage(link, message, clock_.Now());
    return true;
  }

  void Collect() {
    for (auto& reply : receiver_->TakeReplies()) {
      const LinkId link = reply.link % 1'000'000;
      if (reply.link == Receiving(link) && std::count(up_.begin(), up_.end(), link) > 0) {
        backward_[link].push_back(reply.message);
      }
    }
    for (ReceiveDone& done : receiver_->TakeDone()) OnReceiveDone(done);
    for (SendDone& done : sender_->TakeDone()) OnSendDone(done);
  }

  void OnReceiveDone(const ReceiveDone& done) {
    for (Story& story : stories_) {
      if (story.receiver_life != receiver_life_ || story.ticket.transfer_id != done.transfer_id) {
        continue;
      }
      ++story.receiver_outcomes;
      ASSERT_FALSE(story.released);
      ASSERT_EQ(receiver_->num_copying(done.transfer_id), 0);
      story.receiver_ok = done.status.ok();
      if (done.status.ok()) {
        EXPECT_EQ(ReadDestination(story.ticket.blocks, story.moved, true), story.expected);
        EXPECT_EQ(ReadDestination(story.ticket.blocks, story.moved, false), story.untouched);
        EXPECT_EQ(done.report.bytes, story.sent_bytes);
        EXPECT_EQ(done.record.first_token.token, RecordOf(story).first_token.token);
      }
      GiveBack(story);
      return;
    }
    ADD_FAILURE() << "an outcome of an unknown transfer " << done.transfer_id;
  }

  void OnSendDone(const SendDone& done) {
    for (Story& story : stories_) {
      if (story.sender_life != sender_life_ || story.key != done.key) continue;
      ++story.sender_outcomes;
      story.sender_ok = done.status.ok();
      if (story.sender_ok) {
        EXPECT_EQ(done.report.bytes, story.sent_bytes);
      }
      source_.Give(story.source_blocks);
      source_.Fill(story.source_blocks, random_);  // reused at once
      return;
    }
    ADD_FAILURE() << "an outcome of an unknown key " << done.key;
  }

  std::mt19937 random_;
  Faults faults_;
  FakeClock clock_;
  KvCut source_cut_;
  KvCut destination_cut_;
  const ModelFingerprint model_;
  const bool checksum_;
  Pool source_;
  Pool destination_;
  std::unique_ptr<SendTable> sender_;
  std::unique_ptr<ReceiveTable> receiver_;
  std::uint64_t sender_life_ = 0;
  std::uint64_t receiver_life_ = 0;
  std::vector<LinkId> up_;
  std::map<LinkId, std::deque<WireFrame>> forward_;
  std::map<LinkId, std::deque<Message>> backward_;
  std::vector<Story> stories_;
  int num_skipped_ = 0;  // (layer, block) pairs that need not move
  std::optional<std::size_t> waiting_release_;
};

struct Totals {
  int ok = 0;
  int all = 0;
  int skipped = 0;
};

Totals RunWorlds(unsigned count, Faults faults) {
  Totals totals;
  for (unsigned seed = 0; seed < count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(seed, faults);
    world.Run();
    world.ExpectBalance();
    totals.ok += world.num_ok();
    totals.all += world.num_stories();
    totals.skipped += world.num_skipped();
  }
  return totals;
}

// Owners that stop computing are what is left to fail over a sound link: their reservations age.
TEST(TransferPropertyTest, SoundLinksDeliverEveryByte) {
  const Totals totals = RunWorlds(150, {});
  EXPECT_GT(totals.ok, totals.all / 3);
  EXPECT_GT(totals.skipped, totals.all / 3);
}

TEST(TransferPropertyTest, FaultyLinksEndEachTransferOnceOnEachSide) {
  const Totals totals = RunWorlds(400, {.percent = 3});
  EXPECT_GT(totals.ok, totals.all / 20);
}

TEST(TransferPropertyTest, BrokenLinksFailTheirTransfersOnBothSides) {
  const Totals totals = RunWorlds(200, {.percent = 1, .break_links = true});
  EXPECT_GT(totals.ok, totals.all / 20);
}

TEST(TransferPropertyTest, RestartedWorkersRefuseTheTicketsOfTheirFormerSelves) {
  const Totals totals = RunWorlds(200, {.percent = 1, .kill_workers = true});
  EXPECT_GT(totals.ok, totals.all / 20);
}

TEST(TransferPropertyTest, CancelsAtAnyPointFreeBothSides) {
  const Totals totals = RunWorlds(200, {.cancels = true});
  EXPECT_GT(totals.ok, totals.all / 20);
}

TEST(TransferPropertyTest, EverythingAtOnce) {
  RunWorlds(400, {.percent = 4, .break_links = true, .kill_workers = true, .cancels = true});
}

}  // namespace
}  // namespace baton::kvtransfer
