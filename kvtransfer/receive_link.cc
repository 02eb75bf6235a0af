#include "kvtransfer/receive_link.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/host_identity.h"

namespace baton::kvtransfer {
namespace {

std::string ToString(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace

ReceiveLink::ReceiveLink(const Options& options, std::shared_ptr<ReceiveHub> hub,
                         std::shared_ptr<ReplyStream> stream)
    : options_(options), hub_(std::move(hub)), stream_(std::move(stream)), id_(hub_->NewLinkId()) {}

ReceiveLink::~ReceiveLink() { StopRing(); }

absl::Status ReceiveLink::OnFrame(ByteCursor frame) {
  if (!greeted_) {
    absl::Status status = OnHello(frame);
    if (!status.ok()) {
      log::Warn("kv link refused", {{"peer", peer_name_.empty() ? stream_->peer() : peer_name_},
                                    {"error", ToString(status)}});
    }
    return status;
  }
  if (ring_ != nullptr) {
    return absl::InvalidArgumentError("a frame came on the stream although a ring was agreed on");
  }
  return hub_->OnFrame(id_, frame);
}

absl::Status ReceiveLink::OnHello(ByteCursor& frame) {
  std::array<std::byte, kFrameHeaderBytes> bytes;
  if (frame.remaining() < bytes.size()) return absl::DataLossError("first KV frame truncated");
  frame.Take(bytes.size(), bytes.data());
  BATON_ASSIGN_OR_RETURN(const FrameHeader header, DecodeFrameHeader(bytes));
  if (frame.remaining() > kMaxControlBodyBytes) {
    return absl::DataLossError("first KV frame too long");
  }
  std::vector<std::byte> body(frame.remaining());
  frame.Take(body.size(), body.data());
  BATON_ASSIGN_OR_RETURN(const Message message, DecodeMessage(header, body));
  const auto* hello = std::get_if<Hello>(&message.body);
  if (hello == nullptr) return absl::InvalidArgumentError("first KV frame is not a hello");
  peer_name_ = hello->worker_id;
  BATON_RETURN_IF_ERROR(hub_->CheckHello(*hello));

  const std::string no_ring = TakeRing(*hello);
  const std::string transport = ring_ != nullptr ? "shm" : "grpc";
  greeted_ = true;
  hub_->OnLinkUp(id_, *hello, transport,
                 [stream = stream_](const Message& reply) { stream->Write(EncodeMessage(reply)); });
  log::Info("kv link up",
            {{"peer", peer_name_}, {"address", stream_->peer()}, {"transport", transport}});
  if (ring_ != nullptr) ring_thread_ = std::thread([this] { ReadRing(); });
  stream_->Write(EncodeMessage({.transfer_id = 0,
                                .incarnation = 0,
                                .body = Welcome{.worker_id = options_.worker_id,
                                                .incarnation = options_.incarnation,
                                                .transport = transport,
                                                .transport_reason = no_ring,
                                                .cut = options_.cut}}));
  return absl::OkStatus();
}

std::string ReceiveLink::TakeRing(const Hello& hello) {
  if (hello.ring.path.empty()) return "none was offered";
  if (!options_.allow_shared_memory) return "the receiver is set not to use it";
  if (!SameHost(hello.host, ReadHostIdentity())) return "the workers are on different hosts";
  auto ring = RingReader::Open(hello.ring.path, hello.ring.nonce);
  if (!ring.ok()) return ToString(ring.status());
  ring_ = *std::move(ring);
  return {};
}

void ReceiveLink::ReadRing() {
  // Only bounds what a lost wake-up costs; Stop wakes the thread.
  constexpr absl::Duration kLook = absl::Seconds(1);
  while (!ring_->stopped()) {
    auto front = ring_->Front(kLook);
    absl::Status status = front.status();
    if (front.ok() && !front->empty()) {
      ByteCursor frame({*front});
      status = hub_->OnFrame(id_, frame);
      ring_->Pop();
    }
    if (!status.ok()) {
      hub_->OnLinkDown(id_, status);
      stream_->Close(status);
      return;
    }
  }
}

void ReceiveLink::StopRing() {
  if (ring_ != nullptr) ring_->Stop();
  if (ring_thread_.joinable()) ring_thread_.join();
}

void ReceiveLink::OnLost(const absl::Status& why) {
  if (greeted_) hub_->OnLinkDown(id_, why);
}

void ReceiveLink::OnClosed(const absl::Status& why) {
  StopRing();
  if (!greeted_) return;
  hub_->OnLinkDown(id_, why);
  log::Info("kv link down", {{"peer", peer_name_}, {"error", ToString(why)}});
}

}  // namespace baton::kvtransfer
