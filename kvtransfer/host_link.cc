#include "kvtransfer/host_link.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "kvtransfer/crc32c.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/host_identity.h"

namespace baton::kvtransfer {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
// Header, then checksums if asked for. `blocks` has one piece per block.
std::string HeadOf(const DataHeader& header, std::span<const std::span<const std::byte>> blocks) {
  const auto encoded = EncodeDataHeader(header, blocks.front().size());
  std::string head(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  if (!header.checksummed) return head;
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    const std::uint32_t checksum = Crc32c(BlockChecksumSeed(header, static_cast<int>(index)),
                                          blocks[index].data(), blocks[index].size());
    head.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  }
  return head;
}

// Pieces that adjoin as one.
std::vector<std::span<const std::byte>> Merge(std::span<const std::span<const std::byte>> pieces) {
  std::vector<std::span<const std::byte>> merged;
  for (const auto& piece : pieces) {
    if (!merged.empty() && merged.back().data() + merged.back().size() == piece.data()) {
      merged.back() = {merged.back().data(), merged.back().size() + piece.size()};
    } else {
      merged.push_back(piece);
    }
  }
  return merged;
}

std::string ToString(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace

HostConnector::HostConnector(Options options, Dial dial, std::shared_ptr<PoolAccess> access)
    : options_(std::move(options)), dial_(std::move(dial)), access_(std::move(access)) {}

absl::Status HostConnector::RegisterMemory(const KvMemory& memory) {
  cut_ = memory.cut();
  if (access_ == nullptr) access_ = NewHostPoolAccess(memory);
  return absl::OkStatus();
}

std::shared_ptr<Transport> HostConnector::Connect(const PeerAddress& peer, TransportEvents events) {
  auto link =
      std::make_shared<HostLink>(peer, options_, cut_, access_->NewReader(), std::move(events));
  link->Start(dial_);
  return link;
}

HostLink::HostLink(PeerAddress peer, const HostConnector::Options& options, const KvCut& cut,
                   std::unique_ptr<PoolReader> reader, TransportEvents events)
    : peer_(std::move(peer)),
      options_(options),
      cut_(cut),
      reader_(std::move(reader)),
      events_(std::move(events)) {
  if (options_.transport == "grpc" || options_.transport == "nccl") return;
  constexpr std::size_t kPage = 4096;
  auto ring = RingWriter::Create(options_.ring_slots,
                                 (options_.max_frame_bytes + kPage - 1) / kPage * kPage);
  if (ring.ok()) {
    ring_ = *std::move(ring);
  } else {
    log::Warn("kv link: no shared memory to offer",
              {{"peer", peer_.worker_id}, {"error", ToString(ring.status())}});
  }
}

Hello HostLink::MakeHello() {
  Hello hello{.worker_id = options_.worker_id,
              .incarnation = options_.incarnation,
              .expected_worker_id = peer_.worker_id,
              .expected_incarnation = peer_.incarnation,
              .fingerprint = options_.fingerprint,
              .cut = cut_,
              .host = ReadHostIdentity(),
              .ring = {}};
  if (OffersSide()) hello.side_channel = options_.side_channels->name();
  if (ring_ != nullptr) hello.ring = {.path = ring_->path(), .nonce = ring_->nonce()};
  return hello;
}

bool HostLink::OffersSide() const {
  return options_.side_channels != nullptr &&
         (options_.transport == "auto" || options_.transport == options_.side_channels->name());
}

std::shared_ptr<SendSideChannel> HostLink::NewSide(const Welcome& welcome) {
  // The channel is the link's own and is stopped before the link is destroyed.
  return options_.side_channels->NewSender(
      welcome.cut, welcome.worker_id,
      {.write =
           [this](const SideMessage& message) {
             const std::shared_ptr<FrameStream> stream = OpenStream();
             Message out{.transfer_id = message.transfer_id,
                         .incarnation = message.incarnation,
                         .body = {}};
             std::visit([&out](const auto& body) { out.body = body; }, message.body);
             return stream != nullptr &&
                    stream->TryWrite(
                        {.head = EncodeMessage(out), .pieces = {}, .on_released = nullptr});
           },
       .on_writable = [this] { events_.on_writable(); },
       .on_released = [this](std::uint64_t put_id) { events_.on_released(put_id); },
       .on_failed = [this](const absl::Status& why) { Abort(why); }});
}

std::shared_ptr<SendSideChannel> HostLink::Side() {
  absl::MutexLock lock(&mutex_);
  return side_;
}

void HostLink::Start(const HostConnector::Dial& dial) {
  auto self = shared_from_this();
  FrameStream::Events events{
      .on_frame = [self](std::span<const std::byte> frame) { self->OnFrame(frame); },
      .on_writable =
          [self] {
            if (const auto side = self->Side()) side->OnStreamWritable();
            self->events_.on_writable();
          },
      .on_closed = [self](const absl::Status& why) { self->OnClosed(why); }};
  const std::string hello =
      EncodeMessage({.transfer_id = 0, .incarnation = 0, .body = MakeHello()});
  std::shared_ptr<FrameStream> stream =
      dial(peer_.address, options_.max_frame_bytes, std::move(events));
  {
    absl::MutexLock lock(&mutex_);
    if (down_) return;
    stream_ = stream;
  }
  stream->TryWrite({.head = hello, .pieces = {}, .on_released = nullptr});
}

absl::Status HostLink::CheckWelcome(const Welcome& welcome) const {
  if (welcome.protocol_version != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "KV transfer protocols differ: version %d here, %d at %s; run the same release",
        kProtocolVersion, welcome.protocol_version, welcome.worker_id));
  }
  if (welcome.worker_id != peer_.worker_id || welcome.incarnation != peer_.incarnation) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "ticket of another worker: it names %s, incarnation %d; %s, incarnation %d answers",
        peer_.worker_id, peer_.incarnation, welcome.worker_id, welcome.incarnation));
  }
  if (options_.transport == "shm" && welcome.transport != "shm") {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory is demanded but cannot be used: ", welcome.transport_reason,
                     "; set the transport to auto"));
  }
  if (options_.transport == "nccl" && welcome.transport != "nccl") {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL is demanded but cannot be used: ",
                     OffersSide() ? welcome.transport_reason : "our pool is not on devices",
                     "; set the transport to auto"));
  }
  if (OffersSide() && welcome.transport == options_.side_channels->name()) return absl::OkStatus();
  if (welcome.transport != "grpc" && (welcome.transport != "shm" || ring_ == nullptr)) {
    return absl::FailedPreconditionError(
        absl::StrCat("receiver chose a transport that was not offered: ", welcome.transport));
  }
  return absl::OkStatus();
}

void HostLink::OnWelcome(const Welcome& welcome) {
  if (absl::Status status = CheckWelcome(welcome); !status.ok()) {
    Abort(status);
    return;
  }
  const bool beside = OffersSide() && welcome.transport == options_.side_channels->name();
  if (OffersSide() && !beside) {
    log::Info("kv link: blocks do not go from device to device",
              {{"peer", peer_.worker_id}, {"reason", welcome.transport_reason}});
  } else if (!beside && welcome.transport != "shm" && ring_ != nullptr) {
    log::Info("kv link: shared memory not used, bytes go over the network",
              {{"peer", peer_.worker_id}, {"reason", welcome.transport_reason}});
  }
  {
    absl::MutexLock lock(&mutex_);
    if (up_ || down_) return;
    up_ = true;
    ring_chosen_ = welcome.transport == "shm";
    if (beside) side_ = NewSide(welcome);
    if (ring_chosen_) ring_watcher_ = std::thread([this] { WatchRing(); });
  }
  events_.on_up(welcome.transport);
}

void HostLink::OnFrame(std::span<const std::byte> frame) {
  auto header = DecodeFrameHeader(frame);
  absl::StatusOr<Message> message = header.ok()
                                        ? DecodeMessage(*header, frame.subspan(kFrameHeaderBytes))
                                        : absl::StatusOr<Message>(header.status());
  if (!message.ok()) {
    Abort(message.status());
    return;
  }
  if (const auto* welcome = std::get_if<Welcome>(&message->body)) {
    OnWelcome(*welcome);
    return;
  }
  events_.on_message(*message);
}

void HostLink::OnClosed(const absl::Status& why) {
  std::shared_ptr<FrameStream> last;  // ends the cycle of link and stream, after the lock
  std::shared_ptr<SendSideChannel> side;
  {
    absl::MutexLock lock(&mutex_);
    down_ = true;
    last = std::move(stream_);
    side = std::move(side_);
  }
  if (side != nullptr) side->Stop();  // releases every put
  side.reset();                       // what it was made of may go with our owner after on_down
  if (ring_ != nullptr) ring_->Stop();
  if (ring_watcher_.joinable()) ring_watcher_.join();  // it must not report after on_down
  events_.on_down(why);
}

std::shared_ptr<FrameStream> HostLink::OpenStream() {
  absl::MutexLock lock(&mutex_);
  return up_ && !down_ ? stream_ : nullptr;
}

bool HostLink::UseRing() {
  absl::MutexLock lock(&mutex_);
  return ring_chosen_;
}

absl::StatusOr<HostBlocks> HostLink::ReadBlocks(const OutgoingPut& put) {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      awaiting_staging_ = true;
    }
    auto blocks = reader_->Read(put.header.rank, put.header.layer, put.blocks);
    absl::MutexLock lock(&mutex_);
    if (absl::IsResourceExhausted(blocks.status())) {
      if (awaiting_staging_) return blocks;
      continue;  // a hold was let go meanwhile, and that will not be said again
    }
    awaiting_staging_ = false;
    return blocks;
  }
}

void HostLink::OnReleased(std::uint64_t put_id) {
  bool has_staging = false;
  {
    absl::MutexLock lock(&mutex_);
    has_staging = std::exchange(awaiting_staging_, false) && !down_;
  }
  events_.on_released(put_id);
  if (has_staging) events_.on_writable();
}

std::byte* HostLink::ReserveSlot() {
  std::byte* const slot = ring_->Reserve();
  if (slot == nullptr) {
    absl::MutexLock lock(&mutex_);
    awaiting_room_ = true;
  }
  return slot;
}

void HostLink::Publish(std::byte* slot, std::span<const std::byte> head,
                       std::span<const std::span<const std::byte>> pieces) {
  std::byte* at = slot;
  std::memcpy(at, head.data(), head.size());
  at += head.size();
  for (const auto& piece : pieces) {
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  }
  ring_->Publish(static_cast<std::size_t>(at - slot));
}

bool HostLink::TryPut(const OutgoingPut& put) {
  const std::shared_ptr<FrameStream> stream = OpenStream();
  if (stream == nullptr) return false;
  if (const auto side = Side()) {
    return side->TryPut({.put_id = put.put_id,
                         .transfer_id = put.header.transfer_id,
                         .incarnation = put.header.incarnation,
                         .source_rank = put.header.rank,
                         .layer = put.header.layer,
                         .first_block = put.header.first_block,
                         .blocks = put.blocks});
  }
  std::byte* slot = nullptr;
  if (UseRing()) {
    slot = ReserveSlot();
    if (slot == nullptr) return false;
  }
  absl::StatusOr<HostBlocks> blocks = ReadBlocks(put);
  if (!blocks.ok()) {
    if (!absl::IsResourceExhausted(blocks.status())) Abort(blocks.status());
    return false;
  }
  const std::string head = HeadOf(put.header, blocks->pieces);
  if (slot != nullptr) {
    Publish(slot, AsBytes(head), blocks->pieces);
    blocks->hold.reset();
    OnReleased(put.put_id);
    return true;
  }
  return stream->TryWrite({.head = head,
                           .pieces = Merge(blocks->pieces),
                           .on_released = [self = shared_from_this(), put_id = put.put_id,
                                           hold = std::move(blocks->hold)]() mutable {
                             hold.reset();
                             self->OnReleased(put_id);
                           }});
}

bool HostLink::TryNotify(const Message& message) {
  const std::shared_ptr<FrameStream> stream = OpenStream();
  if (stream == nullptr) return false;
  std::string frame = EncodeMessage(message);
  if (const auto side = Side()) {
    return side->TryNotify([this, frame = std::move(frame)] {
      const std::shared_ptr<FrameStream> open = OpenStream();
      return open == nullptr ||
             open->TryWrite({.head = frame, .pieces = {}, .on_released = nullptr});
    });
  }
  if (UseRing()) {
    std::byte* const slot = ReserveSlot();
    if (slot != nullptr) Publish(slot, AsBytes(frame), {});
    return slot != nullptr;
  }
  return stream->TryWrite({.head = std::move(frame), .pieces = {}, .on_released = nullptr});
}

void HostLink::Abort(const absl::Status& why) {
  std::shared_ptr<FrameStream> stream;
  {
    absl::MutexLock lock(&mutex_);
    stream = stream_;
  }
  if (stream != nullptr) stream->Close(why);
}

void HostLink::WatchRing() {
  // Bounds what a lost wake-up costs.
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto asked = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return awaiting_room_ || down_;
      };
      mutex_.Await(absl::Condition(&asked));
      if (down_) return;
      awaiting_room_ = false;
    }
    ring_->WaitForRoom(kLook);
    events_.on_writable();
  }
}

}  // namespace baton::kvtransfer
