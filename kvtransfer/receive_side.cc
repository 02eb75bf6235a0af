#include "kvtransfer/receive_side.h"

#include <array>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status.h"
#include "kvtransfer/frame.h"

namespace baton::kvtransfer {

ReceiveSide::ReceiveSide(SideChannels& channels, const KvMemory& memory, const Hello& hello,
                         std::shared_ptr<ReceiveHub> hub, LinkId link,
                         std::function<void(const absl::Status&)> on_failed)
    : memory_(memory), hub_(std::move(hub)), link_(link) {
  channel_ = channels.NewReceiver(
      hello.cut, hello.worker_id,
      {.claim = [this](const SideMessage& message) { return OnAnnounced(message); },
       .landed = [this](const SideMessage&, int index,
                        const absl::Status& status) { OnLanded(index, status); },
       .on_failed = std::move(on_failed)});
}

absl::Status ReceiveSide::OnFrame(ByteCursor& frame) {
  std::array<std::byte, kFrameHeaderBytes> bytes;
  if (frame.remaining() < bytes.size()) return absl::DataLossError("KV frame truncated");
  frame.Take(bytes.size(), bytes.data());
  BATON_ASSIGN_OR_RETURN(const FrameHeader header, DecodeFrameHeader(bytes));
  if (header.is_data || frame.remaining() > kMaxControlBodyBytes) {
    return absl::InvalidArgumentError("KV blocks came on the stream although NCCL was agreed on");
  }
  std::vector<std::byte> body(frame.remaining());
  frame.Take(body.size(), body.data());
  BATON_ASSIGN_OR_RETURN(Message message, DecodeMessage(header, body));
  SideMessage side{
      .transfer_id = message.transfer_id, .incarnation = message.incarnation, .body = {}};
  if (const auto* open = std::get_if<OpenPair>(&message.body)) {
    side.body = *open;
  } else if (std::holds_alternative<ClosePairs>(message.body)) {
    side.body = ClosePairs{};
  } else if (const auto* announced = std::get_if<AnnounceBlocks>(&message.body)) {
    side.body = *announced;
  } else if (std::holds_alternative<FinishTransfer>(message.body)) {
    return channel_->AfterLanding(
        [this, message = std::move(message)] { hub_->OnMessage(link_, message); });
  } else {
    hub_->OnMessage(link_, message);
    return absl::OkStatus();
  }
  return channel_->OnMessage(side);
}

std::vector<ClaimedBlock> ReceiveSide::OnAnnounced(const SideMessage& message) {
  const auto& announced = std::get<AnnounceBlocks>(message.body);
  Claim claim{.header = {.transfer_id = message.transfer_id,
                         .incarnation = message.incarnation,
                         .rank = static_cast<std::uint16_t>(announced.source_rank),
                         .layer = announced.layer,
                         .first_block = announced.first_block,
                         .num_blocks = announced.num_blocks},
              .put = {},
              .num_open = 0};
  auto put = hub_->StartPut(link_, claim.header);
  if (!put.ok()) return {};  // the link is down: nobody wants them
  claim.put = *std::move(put);
  std::vector<ClaimedBlock> blocks;
  for (const IncomingBlock& block : claim.put.blocks) {
    ClaimedBlock& to = blocks.emplace_back();
    to.granted = block.granted;
    if (!block.granted) continue;
    ++claim.num_open;
    for (const BlockCopy& copy : block.copies) {
      const KvMemory::Rank& rank = memory_.ranks[copy.destination_rank];
      to.placements.push_back({.destination_rank = copy.destination_rank,
                               .source_offset = copy.source_offset,
                               .to = rank.layers[announced.layer] +
                                     copy.destination_block * rank.block_bytes +
                                     copy.destination_offset,
                               .bytes = copy.bytes});
    }
  }
  if (claim.num_open == 0) {
    hub_->FinishPut(claim.header, claim.put);
  } else {
    claims_.push_back(std::move(claim));
  }
  return blocks;
}

void ReceiveSide::OnLanded(int index, const absl::Status& status) {
  BATON_CHECK(!claims_.empty(), "a block landed that was not claimed");
  Claim& claim = claims_.front();
  claim.put.blocks[index].status = status;
  if (--claim.num_open > 0) return;
  hub_->FinishPut(claim.header, claim.put);
  claims_.pop_front();
}

}  // namespace baton::kvtransfer
