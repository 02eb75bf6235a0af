// Frames of KV transfers as a receiver takes them: the bytes of a stream's message, after a Begin
// that makes the reservation live. Whatever they are, the answer is a Status.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "kvtransfer/crc32c.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/receive_hub.h"

namespace baton::kvtransfer {
namespace {

constexpr std::size_t kBlockBytes = 16;
constexpr std::uint64_t kIncarnation = 1;

ByteCursor CursorOf(const void* data, std::size_t size) {
  return ByteCursor({{static_cast<const std::byte*>(data), size}});
}

void TakeFrame(const std::uint8_t* data, std::size_t size) {
  static const RealClock clock;
  std::vector<std::byte> pool(4 * kBlockBytes);
  ReceiveHub::Options options;
  options.table.worker_id = "d";
  options.table.incarnation = kIncarnation;
  options.table.fingerprint = {.model = "m",
                               .compute = "fast",
                               .kv_dtype = "f16",
                               .num_layers = 1,
                               .num_kv_heads = 2,
                               .head_dim = 2,
                               .windows = {}};
  options.table.cut = {.block_size = 1};
  options.table.limits = {.lease = absl::Minutes(1), .max_age = absl::Minutes(1)};
  options.writer =
      NewHostPoolAccess({.ranks = {{.layers = {pool.data()}, .block_bytes = kBlockBytes}},
                         .block_size = 1,
                         .num_blocks = 4})
          ->NewWriter();
  TransferReceiver::Callbacks callbacks{
      .on_complete = [](std::uint64_t, const HandoffRecord&, const ReceiveReport&) {},
      .on_failed = [](std::uint64_t, const absl::Status&) {}};
  ReceiveHub hub(std::move(options), std::move(callbacks), clock);
  const TransferTicket ticket = hub.Reserve({2, 1}, 2);
  const LinkId link = hub.NewLinkId();
  // As it is cut here, or so that two ranks send a block of two tokens each.
  const bool unequal = size > 4 && data[4] % 2 == 1;
  Hello hello;
  hello.worker_id = "p";
  hello.cut = unequal ? KvCut{.block_size = 2, .tensor_parallel_size = 2} : KvCut{.block_size = 1};
  hub.OnLinkUp(link, hello, "grpc", [](const Message& reply) { EncodeMessage(reply); });
  const std::string begin =
      EncodeMessage({.transfer_id = ticket.transfer_id,
                     .incarnation = kIncarnation,
                     .body = BeginTransfer{.num_layers = 1, .num_blocks = unequal ? 1 : 2}});
  ByteCursor first = CursorOf(begin.data(), begin.size());
  if (!hub.OnFrame(link, first).ok()) __builtin_trap();
  // As it is, and with a header that fits, so that the body is reached without guessing checksums.
  ByteCursor raw = CursorOf(data, size);
  hub.OnFrame(link, raw).IgnoreError();
  if (size < 16) return;
  const auto header = EncodeDataHeader({.transfer_id = ticket.transfer_id,
                                        .incarnation = kIncarnation,
                                        .rank = static_cast<std::uint16_t>(data[5] % 3),
                                        .layer = data[0] % 3,
                                        .first_block = data[1] % 4,
                                        .num_blocks = data[2] % 4,
                                        .checksummed = data[3] % 2 == 0},
                                       kBlockBytes);
  std::vector<std::byte> frame(header.begin(), header.end());
  for (std::size_t i = 4; i < size; ++i) frame.push_back(static_cast<std::byte>(data[i]));
  ByteCursor framed = CursorOf(frame.data(), frame.size());
  hub.OnFrame(link, framed).IgnoreError();
  FrameHeader control;
  control.type = 1 + data[0] % 9;
  control.body_bytes = static_cast<std::uint32_t>(size - 4);
  control.body_checksum = Crc32c(0, frame.data() + header.size(), size - 4);
  DecodeMessage(control, {frame.data() + header.size(), size - 4}).status().IgnoreError();
}

}  // namespace
}  // namespace baton::kvtransfer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  baton::kvtransfer::TakeFrame(data, size);
  return 0;
}
