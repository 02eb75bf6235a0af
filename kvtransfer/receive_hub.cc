#include "kvtransfer/receive_hub.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "kvtransfer/crc32c.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/metrics.h"

namespace baton::kvtransfer {
namespace {

// The longest the thread sleeps while reservations are open, so that a clock other than the
// machine's is looked at in time.
constexpr absl::Duration kLook = absl::Milliseconds(50);

std::string ToString(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace

ReceiveHub::ReceiveHub(Options options, TransferReceiver::Callbacks callbacks, const Clock& clock)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      clock_(clock),
      table_(options_.table),
      thread_([this] { Run(); }) {}

ReceiveHub::~ReceiveHub() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

TransferTicket ReceiveHub::Reserve(std::vector<std::int32_t> blocks, int num_tokens) {
  absl::MutexLock lock(&mutex_);
  woken_ = true;  // there is a new deadline
  return table_.Reserve(std::move(blocks), num_tokens, clock_.Now());
}

void ReceiveHub::Release(std::uint64_t transfer_id) {
  const bool from_callback = std::this_thread::get_id() == thread_.get_id();
  {
    absl::MutexLock lock(&mutex_);
    table_.Release(transfer_id);
    std::erase_if(done_, [&](const ReceiveDone& done) { return done.transfer_id == transfer_id; });
    const auto silent = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return table_.num_copying(transfer_id) == 0 && (from_callback || telling_ != transfer_id);
    };
    mutex_.Await(absl::Condition(&silent));
  }
  Flush();
}

LinkId ReceiveHub::NewLinkId() {
  absl::MutexLock lock(&mutex_);
  return next_link_++;
}

absl::Status ReceiveHub::CheckHello(const Hello& hello) const {
  absl::MutexLock lock(&mutex_);
  return table_.CheckHello(hello);
}

void ReceiveHub::OnLinkUp(LinkId link, std::string_view peer_name, std::string_view transport,
                          Reply reply) {
  absl::MutexLock lock(&mutex_);
  table_.OnLinkUp(link, peer_name, transport);
  replies_[link] = std::make_shared<const Reply>(std::move(reply));
  if (options_.metrics != nullptr) options_.metrics->links_open.Add(1);
}

void ReceiveHub::OnLinkDown(LinkId link, const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (replies_.erase(link) == 0) return;
    table_.OnLinkDown(link, why);
    woken_ = true;
    if (options_.metrics != nullptr) options_.metrics->links_open.Add(-1);
  }
  Flush();
}

absl::Status ReceiveHub::OnFrame(LinkId link, ByteCursor& frame) {
  std::array<std::byte, kFrameHeaderBytes> bytes;
  const std::size_t size = std::min(frame.remaining(), bytes.size());
  frame.Take(size, bytes.data());
  auto header = DecodeFrameHeader(std::span<const std::byte>(bytes).first(size));
  if (!header.ok()) return header.status();
  if (header->is_data) {
    absl::Status status = OnData(link, header->data, frame);
    Flush();
    return status;
  }
  if (frame.remaining() > kMaxControlBodyBytes) {
    return absl::DataLossError("KV control frame too long");
  }
  std::vector<std::byte> body(frame.remaining());
  frame.Take(body.size(), body.data());
  auto message = DecodeMessage(*header, body);
  if (!message.ok()) return message.status();
  {
    absl::MutexLock lock(&mutex_);
    table_.OnMessage(link, *message, clock_.Now());
    woken_ = true;
  }
  Flush();
  return absl::OkStatus();
}

absl::Status ReceiveHub::OnData(LinkId link, const DataHeader& header, ByteCursor& frame) {
  const std::size_t block_bytes = options_.memory.block_bytes;
  const std::size_t checksum_bytes = header.checksummed ? sizeof(std::uint32_t) : 0;
  const auto num_blocks = static_cast<std::size_t>(header.num_blocks);
  if (num_blocks == 0 || num_blocks > frame.remaining() / block_bytes ||
      frame.remaining() != num_blocks * (block_bytes + checksum_bytes)) {
    return absl::DataLossError(
        absl::StrFormat("KV data frame has %d bytes for %d blocks of %d bytes", frame.remaining(),
                        header.num_blocks, block_bytes));
  }
  std::vector<std::uint32_t> checksums(header.checksummed ? num_blocks : 0);
  frame.Take(checksums.size() * sizeof(std::uint32_t),
             reinterpret_cast<std::byte*>(checksums.data()));
  for (int index = 0; index < header.num_blocks; ++index) {
    CopyBlock(link, header, index, header.checksummed ? checksums[index] : 0, frame);
  }
  return absl::OkStatus();
}

void ReceiveHub::CopyBlock(LinkId link, const DataHeader& header, int index, std::uint32_t checksum,
                           ByteCursor& frame) {
  const std::size_t block_bytes = options_.memory.block_bytes;
  std::byte* to = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    auto block = table_.StartCopy(link, header, index, clock_.Now());
    if (block.ok()) to = options_.memory.layers[header.layer] + *block * block_bytes;
  }
  frame.Take(block_bytes, to);
  if (to == nullptr) {
    if (options_.metrics != nullptr) options_.metrics->refused_blocks.Add(1);
    return;
  }
  // Over our own copy: a sender may still scribble on shared memory.
  const bool intact =
      !header.checksummed || Crc32c(BlockChecksumSeed(header, index), to, block_bytes) == checksum;
  if (options_.metrics != nullptr) options_.metrics->bytes.Add(static_cast<double>(block_bytes));
  absl::MutexLock lock(&mutex_);
  table_.FinishCopy(header, index, intact);
  if (!intact) woken_ = true;
}

void ReceiveHub::Flush() {
  std::vector<std::pair<std::shared_ptr<const Reply>, Message>> out;
  {
    absl::MutexLock lock(&mutex_);
    for (ReceiveTable::Reply& reply : table_.TakeReplies()) {
      const auto it = replies_.find(reply.link);
      if (it != replies_.end()) out.emplace_back(it->second, std::move(reply.message));
    }
    for (ReceiveDone& done : table_.TakeDone()) {
      done_.push_back(std::move(done));
      woken_ = true;
    }
  }
  for (const auto& [reply, message] : out) (*reply)(message);
}

void ReceiveHub::Run() {
  while (true) {
    std::vector<ReceiveDone> done;
    {
      absl::MutexLock lock(&mutex_);
      const auto due = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_ || stopping_; };
      absl::Duration wait = absl::InfiniteDuration();
      if (table_.num_reservations() > 0) {
        wait = std::clamp(table_.NextDeadline() - clock_.Now(), absl::ZeroDuration(), kLook);
      }
      mutex_.AwaitWithTimeout(absl::Condition(&due), wait);
      if (stopping_) return;
      woken_ = false;
      table_.OnTick(clock_.Now());
    }
    Flush();
    while (true) {
      ReceiveDone next;
      {
        absl::MutexLock lock(&mutex_);
        telling_ = 0;
        if (done_.empty()) break;
        next = std::move(done_.front());
        done_.erase(done_.begin());
        telling_ = next.transfer_id;
      }
      Tell(next);
    }
  }
}

void ReceiveHub::Tell(const ReceiveDone& done) {
  if (options_.metrics != nullptr) {
    options_.metrics->Count(done.status, done.report.completed - done.report.first_byte);
  }
  if (done.status.ok()) {
    callbacks_.on_complete(done.transfer_id, done.record, done.report);
    return;
  }
  const bool cancelled = done.status.code() == absl::StatusCode::kCancelled;  // an everyday end
  log::Write(cancelled ? log::Level::kInfo : log::Level::kWarn, "kv transfer not received",
             {{"error", ToString(done.status)}});
  callbacks_.on_failed(done.transfer_id, done.status);
}

}  // namespace baton::kvtransfer
