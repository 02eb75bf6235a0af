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
  if (side_ != nullptr) return side_->OnFrame(frame);
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

  std::string transport;
  const std::string reason = ChooseTransport(*hello, &transport);
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
                                                .transport_reason = reason,
                                                .cut = options_.cut}}));
  return absl::OkStatus();
}

std::string ReceiveLink::ChooseTransport(const Hello& hello, std::string* transport) {
  SideChannels* const side = options_.side_channels.get();
  std::string why_not;
  if (hello.side_channel.empty() && side != nullptr) why_not = "the sender offers no NCCL; ";
  if (!hello.side_channel.empty()) {
    if (side == nullptr || side->name() != hello.side_channel) {
      why_not = "our pool is not on devices, or the transport is set to another; ";
    } else if (const std::string why = side->WhyNotFrom(hello.cut); !why.empty()) {
      why_not = absl::StrCat(why, "; ");
    } else {
      *transport = side->name();
      side_ = std::make_unique<ReceiveSide>(
          *side, options_.memory, hello, hub_, id_,
          [this](const absl::Status& failed) { OnLinkFailed(failed); });
      return {};
    }
  }
  const std::string no_ring = TakeRing(hello);
  *transport = ring_ != nullptr ? "shm" : "grpc";
  return absl::StrCat(why_not, no_ring);
}

void ReceiveLink::OnLinkFailed(const absl::Status& why) {
  hub_->OnLinkDown(id_, why);
  stream_->Close(why);
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
      OnLinkFailed(status);
      return;
    }
  }
}

void ReceiveLink::StopRing() {
  if (ring_ != nullptr) ring_->Stop();
  if (ring_thread_.joinable()) ring_thread_.join();
}

void ReceiveLink::OnLost(const absl::Status& why) {
  if (!greeted_) return;
  hub_->OnLinkDown(id_, why);
  if (side_ != nullptr) side_->Lose();
}

void ReceiveLink::OnClosed(const absl::Status& why) {
  StopRing();
  if (!greeted_) return;
  hub_->OnLinkDown(id_, why);
  if (side_ != nullptr) side_->Stop();
  log::Info("kv link down", {{"peer", peer_name_}, {"error", ToString(why)}});
}

}  // namespace baton::kvtransfer
