#include "kvtransfer/receive_hub.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status.h"
#include "kvtransfer/crc32c.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/metrics.h"

namespace baton::kvtransfer {
namespace {

// The longest the thread sleeps while reservations are open, so that a clock other than the
// machine's is looked at in time.
constexpr absl::Duration kLook = absl::Milliseconds(50);

// Far beyond what copying a frame takes, on a device too.
constexpr absl::Duration kReleaseLimit = absl::Seconds(60);

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
    // Handing the blocks to another sequence while they are being written would corrupt it.
    BATON_CHECK(mutex_.AwaitWithTimeout(absl::Condition(&silent), kReleaseLimit),
                "a copy into released KV blocks, or the owner's callback, does not end");
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

void ReceiveHub::OnLinkUp(LinkId link, const Hello& hello, std::string_view transport,
                          Reply reply) {
  absl::MutexLock lock(&mutex_);
  table_.OnLinkUp(link, hello, transport);
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
  if (header->is_data) return OnData(link, header->data, frame);
  if (frame.remaining() > kMaxControlBodyBytes) {
    return absl::DataLossError("KV control frame too long");
  }
  std::vector<std::byte> body(frame.remaining());
  frame.Take(body.size(), body.data());
  auto message = DecodeMessage(*header, body);
  if (!message.ok()) return message.status();
  OnMessage(link, *message);
  return absl::OkStatus();
}

void ReceiveHub::OnMessage(LinkId link, const Message& message) {
  {
    absl::MutexLock lock(&mutex_);
    table_.OnMessage(link, message, clock_.Now());
    woken_ = true;
  }
  Flush();
}

absl::StatusOr<IncomingPut> ReceiveHub::StartPut(LinkId link, const DataHeader& header) {
  IncomingPut put;
  absl::MutexLock lock(&mutex_);
  const std::shared_ptr<const TransferPlan> plan = table_.PlanOf(link);
  if (plan == nullptr) return absl::UnavailableError("link is down");
  if (header.rank >= plan->source().tensor_parallel_size) {
    return absl::DataLossError(absl::StrFormat("KV data frame of rank %d, the sender has %d ranks",
                                               header.rank, plan->source().tensor_parallel_size));
  }
  if (header.num_blocks < 1 || header.num_blocks > kMaxBlocksPerFrame) {
    return absl::DataLossError(absl::StrFormat("KV data frame of %d blocks, must be 1..%d",
                                               header.num_blocks, kMaxBlocksPerFrame));
  }
  put.block_bytes = plan->source_block_bytes(header.rank);
  put.blocks.resize(header.num_blocks);
  std::vector<std::size_t> ends;
  const absl::Time now = clock_.Now();
  for (int index = 0; index < header.num_blocks; ++index) {
    put.blocks[index].granted = table_.StartCopy(link, header, index, now, &put.copies).ok();
    ends.push_back(put.copies.size());
  }
  // Now that they do not move any more.
  std::size_t first = 0;
  for (std::size_t index = 0; index < ends.size(); ++index) {
    put.blocks[index].copies = std::span(put.copies).subspan(first, ends[index] - first);
    first = ends[index];
  }
  return put;
}

void ReceiveHub::FinishPut(const DataHeader& header, const IncomingPut& put) {
  std::size_t num_granted = 0;
  {
    absl::MutexLock lock(&mutex_);
    for (int index = 0; index < header.num_blocks; ++index) {
      const IncomingBlock& block = put.blocks[index];
      if (!block.granted) continue;
      ++num_granted;
      table_.FinishCopy(header, index, block.status);
      if (!block.status.ok()) woken_ = true;
    }
  }
  if (TransferMetrics* const metrics = options_.metrics; metrics != nullptr) {
    metrics->bytes.Add(static_cast<double>(num_granted * put.block_bytes));
    metrics->refused_blocks.Add(static_cast<double>(put.blocks.size() - num_granted));
  }
  Flush();
}

absl::Status ReceiveHub::OnData(LinkId link, const DataHeader& header, ByteCursor& frame) {
  BATON_ASSIGN_OR_RETURN(IncomingPut put, StartPut(link, header));
  const std::size_t num_blocks = put.blocks.size();
  const std::size_t checksum_bytes = header.checksummed ? sizeof(std::uint32_t) : 0;
  if (frame.remaining() != num_blocks * (put.block_bytes + checksum_bytes)) {
    const absl::Status status =
        absl::DataLossError(absl::StrFormat("KV data frame has %d bytes for %d blocks of %d bytes",
                                            frame.remaining(), num_blocks, put.block_bytes));
    for (IncomingBlock& block : put.blocks) block.status = status;
    FinishPut(header, put);
    return status;
  }
  std::vector<std::uint32_t> checksums(header.checksummed ? num_blocks : 0);
  frame.Take(checksums.size() * sizeof(std::uint32_t),
             reinterpret_cast<std::byte*>(checksums.data()));
  PoolWriter::Verify verify;
  if (header.checksummed) {
    verify = [&](int index, std::span<const std::byte> bytes) {
      const std::uint32_t seed = BlockChecksumSeed(header, index);
      return Crc32c(seed, bytes.data(), bytes.size()) == checksums[index];
    };
  }
  options_.writer->Write(header.layer, put.block_bytes, frame, verify, put.blocks);
  FinishPut(header, put);
  return absl::OkStatus();
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
