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
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvtransfer/crc32c.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/send_table.h"
#include "tests/support/fake_clock.h"

namespace baton::kvtransfer {
namespace {

constexpr std::size_t kBlockBytes = 24;
constexpr int kPoolBlocks = 24;

// One pool: bytes by (layer, block) and which blocks are free.
struct Pool {
  explicit Pool(int num_layers) : layers(num_layers) {
    for (auto& layer : layers) layer.assign(kPoolBlocks * kBlockBytes, 0);
    for (int block = 0; block < kPoolBlocks; ++block) free.push_back(block);
  }
  std::uint8_t* at(int layer, int block) { return &layers[layer][block * kBlockBytes]; }
  void Fill(const std::vector<std::int32_t>& blocks, std::mt19937& random) {
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      for (const int block : blocks) {
        if (block < 0) continue;
        for (std::size_t i = 0; i < kBlockBytes; ++i) {
          at(static_cast<int>(layer), block)[i] = static_cast<std::uint8_t>(random());
        }
      }
    }
  }
  // Of a prompt in `blocks`: what lies in the pairs that `first_blocks` says move, or in the
  // others.
  std::vector<std::uint8_t> Read(const std::vector<std::int32_t>& blocks,
                                 const std::vector<int>& first_blocks, bool moved) {
    std::vector<std::uint8_t> out;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      for (int i = 0; i < static_cast<int>(blocks.size()); ++i) {
        if ((i >= first_blocks[layer]) != moved || blocks[i] < 0) continue;
        const std::uint8_t* from = at(static_cast<int>(layer), blocks[i]);
        out.insert(out.end(), from, from + kBlockBytes);
      }
    }
    return out;
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
  std::vector<std::vector<std::uint8_t>> layers;
  std::vector<std::int32_t> free;
};

// What a test knows of one transfer from outside.
struct Story {
  TransferTicket ticket;
  std::uint64_t receiver_life = 0;
  std::uint64_t sender_life = 0;
  std::uint64_t key = 0;
  std::vector<std::int32_t> source_blocks;
  std::vector<int> first_blocks;        // that move, per layer
  std::vector<std::uint8_t> expected;   // what moves
  std::vector<std::uint8_t> untouched;  // what lies at the destination of the rest
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
        num_layers_(1 + static_cast<int>(random_() % 3)),
        windows_(RandomWindows()),
        checksum_(random_() % 2 == 0),
        source_(num_layers_),
        destination_(num_layers_) {
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

  std::vector<std::int32_t> RandomWindows() {
    std::vector<std::int32_t> windows;
    if (Chance(50)) return windows;
    for (int i = 0; i < num_layers_; ++i) windows.push_back(static_cast<int>(random_() % 12));
    return windows;
  }
  ModelFingerprint Fingerprint() const {
    return {.model = "m",
            .compute = "f32",
            .kv_dtype = "f32",
            .num_layers = num_layers_,
            .num_kv_heads = 1,
            .head_dim = 1,
            .block_size = 3,
            .windows = windows_};
  }
  void StartSender() {
    ++sender_life_;
    sender_ = std::make_unique<SendTable>(
        SendTable::Options{.fingerprint = Fingerprint(),
                           .layout = LayoutOf(Fingerprint(), kBlockBytes),
                           .num_blocks = kPoolBlocks,
                           .max_frame_bytes = kBlockBytes * (1 + random_() % 4),
                           .checksum = checksum_});
  }
  void StartReceiver() {
    ++receiver_life_;
    receiver_ = std::make_unique<ReceiveTable>(
        ReceiveTable::Options{.worker_id = "d",
                              .incarnation = 1000 + receiver_life_,
                              .fingerprint = Fingerprint(),
                              .block_bytes = kBlockBytes,
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
    const int count = 1 + static_cast<int>(random_() % 5);
    if (static_cast<int>(std::min(source_.free.size(), destination_.free.size())) < count) return;
    Story story;
    const int num_tokens = count * 3 - static_cast<int>(random_() % 3);
    story.source_blocks = source_.Take(count, random_);
    source_.Fill(story.source_blocks, random_);
    story.first_blocks = FirstMovedBlocks(Fingerprint(), num_tokens);
    story.expected = source_.Read(story.source_blocks, story.first_blocks, true);
    // Blocks that no layer needs have no destination.
    const int num_holes = *std::min_element(story.first_blocks.begin(), story.first_blocks.end());
    std::vector<std::int32_t> to(num_holes, -1);
    const std::vector<std::int32_t> taken = destination_.Take(count - num_holes, random_);
    to.insert(to.end(), taken.begin(), taken.end());
    story.untouched = destination_.Read(to, story.first_blocks, false);
    for (const int first : story.first_blocks) num_skipped_ += first;
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
    if (story.next_layer < num_layers_) {
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
                .fingerprint = Fingerprint(),
                .block_bytes = kBlockBytes,
                .host = {},
                .ring = {}};
    if (faults_.percent > 0 && Chance(10)) return;  // never answers: the connect deadline runs
    if (absl::Status status = receiver_->CheckHello(hello); !status.ok()) {
      sender_->OnLinkDown(open.link, status, clock_.Now());
      return;
    }
    receiver_->OnLinkUp(Receiving(open.link), "p", "test");
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
    for (int index = 0; index < header.num_blocks; ++index) {
      const Copy& copy = put.copies[index];
      auto to = receiver_->StartCopy(Receiving(link), header, index, clock_.Now());
      if (!to.ok()) continue;
      if (Chance(faults_.percent)) Interrupt(link);
      std::uint8_t bytes[kBlockBytes];
      std::memcpy(bytes, source_.at(header.layer, copy.source_block), kBlockBytes);
      const std::uint32_t sent = Crc32c(BlockChecksumSeed(put.header, index), bytes, kBlockBytes);
      if (identity != 0 && Chance(faults_.percent)) bytes[random_() % kBlockBytes] ^= 1;
      const std::uint32_t came = Crc32c(BlockChecksumSeed(header, index), bytes, kBlockBytes);
      std::memcpy(destination_.at(header.layer, *to), bytes, kBlockBytes);
      receiver_->FinishCopy(header, index, identity == 0 || sent == came);
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
        EXPECT_EQ(destination_.Read(story.ticket.blocks, story.first_blocks, true), story.expected);
        EXPECT_EQ(destination_.Read(story.ticket.blocks, story.first_blocks, false),
                  story.untouched);
        EXPECT_EQ(done.report.bytes, static_cast<std::int64_t>(story.expected.size()));
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
        EXPECT_EQ(done.report.bytes, static_cast<std::int64_t>(story.expected.size()));
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
  const int num_layers_;
  const std::vector<std::int32_t> windows_;
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
