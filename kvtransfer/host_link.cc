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
std::string ToString(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace

HostConnector::HostConnector(Options options, Dial dial)
    : options_(std::move(options)), dial_(std::move(dial)) {}

absl::Status HostConnector::RegisterMemory(const KvMemory& memory) {
  memory_ = memory;
  return absl::OkStatus();
}

std::shared_ptr<Transport> HostConnector::Connect(const PeerAddress& peer, TransportEvents events) {
  auto link = std::make_shared<HostLink>(peer, options_, memory_, std::move(events));
  link->Start(dial_);
  return link;
}

HostLink::HostLink(PeerAddress peer, const HostConnector::Options& options, const KvMemory& memory,
                   TransportEvents events)
    : peer_(std::move(peer)), options_(options), memory_(memory), events_(std::move(events)) {
  if (options_.transport == "grpc") return;
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
              .block_bytes = memory_.block_bytes,
              .host = ReadHostIdentity(),
              .ring = {}};
  if (ring_ != nullptr) hello.ring = {.path = ring_->path(), .nonce = ring_->nonce()};
  return hello;
}

void HostLink::Start(const HostConnector::Dial& dial) {
  auto self = shared_from_this();
  FrameStream::Events events{
      .on_frame = [self](std::span<const std::byte> frame) { self->OnFrame(frame); },
      .on_writable = [self] { self->events_.on_writable(); },
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
  if (welcome.transport != "shm" && ring_ != nullptr) {
    log::Info("kv link: shared memory not used, bytes go over the network",
              {{"peer", peer_.worker_id}, {"reason", welcome.transport_reason}});
  }
  {
    absl::MutexLock lock(&mutex_);
    if (up_ || down_) return;
    up_ = true;
    ring_chosen_ = welcome.transport == "shm";
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
  {
    absl::MutexLock lock(&mutex_);
    down_ = true;
    last = std::move(stream_);
  }
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

std::span<const std::byte> HostLink::BytesOf(const DataHeader& header, const Copy& copy) const {
  return {
      memory_.layers[header.layer] + copy.source_block * memory_.block_bytes + copy.source_offset,
      copy.bytes};
}

std::string HostLink::HeadOf(const OutgoingPut& put) const {
  const auto header = EncodeDataHeader(put.header, memory_.block_bytes);
  std::string head(reinterpret_cast<const char*>(header.data()), header.size());
  if (!put.header.checksummed) return head;
  for (std::size_t index = 0; index < put.copies.size(); ++index) {
    const auto bytes = BytesOf(put.header, put.copies[index]);
    const std::uint32_t checksum =
        Crc32c(BlockChecksumSeed(put.header, static_cast<int>(index)), bytes.data(), bytes.size());
    head.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  }
  return head;
}

bool HostLink::WriteToRing(std::span<const std::byte> head, std::span<const Copy> copies,
                           const DataHeader& header) {
  std::byte* slot = ring_->Reserve();
  if (slot == nullptr) {
    absl::MutexLock lock(&mutex_);
    awaiting_room_ = true;
    return false;
  }
  std::byte* at = slot;
  std::memcpy(at, head.data(), head.size());
  at += head.size();
  for (const Copy& copy : copies) {
    const auto bytes = BytesOf(header, copy);
    std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  }
  ring_->Publish(static_cast<std::size_t>(at - slot));
  return true;
}

bool HostLink::TryPut(const OutgoingPut& put) {
  const std::shared_ptr<FrameStream> stream = OpenStream();
  if (stream == nullptr) return false;
  const std::string head = HeadOf(put);
  if (UseRing()) {
    if (!WriteToRing(AsBytes(head), put.copies, put.header)) return false;
    events_.on_released(put.put_id);
    return true;
  }
  std::vector<std::span<const std::byte>> pieces;
  for (const Copy& copy : put.copies) {
    const auto bytes = BytesOf(put.header, copy);
    const bool adjoins =
        !pieces.empty() && pieces.back().data() + pieces.back().size() == bytes.data();
    if (adjoins) {
      pieces.back() = {pieces.back().data(), pieces.back().size() + bytes.size()};
    } else {
      pieces.push_back(bytes);
    }
  }
  return stream->TryWrite({.head = head,
                           .pieces = std::move(pieces),
                           .on_released = [self = shared_from_this(), put_id = put.put_id] {
                             self->events_.on_released(put_id);
                           }});
}

bool HostLink::TryNotify(const Message& message) {
  const std::shared_ptr<FrameStream> stream = OpenStream();
  if (stream == nullptr) return false;
  std::string frame = EncodeMessage(message);
  if (UseRing()) return WriteToRing(AsBytes(frame), {}, {});
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
