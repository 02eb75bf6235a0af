#include "kvtransfer/shm_ring.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status.h"

namespace baton::kvtransfer {
namespace {

constexpr std::uint64_t kRingMagic = 0x31676e6952766b42;  // "BkvRing1"
constexpr std::uint32_t kMaxSlots = 64;
constexpr std::size_t kMaxRingBytes = std::size_t{1} << 30;

}  // namespace

// Counters run freely and wrap; slot = counter % num_slots. Each side's words have a cache line.
struct RingHeader {
  std::uint64_t magic;
  std::uint64_t nonce;
  std::uint32_t num_slots;
  std::uint32_t slot_bytes;
  std::uint32_t lengths[kMaxSlots];
  alignas(64) std::atomic<std::uint32_t> head;  // frames published; the reader waits on it
  std::atomic<std::uint32_t> reader_waits;
  alignas(64) std::atomic<std::uint32_t> tail;  // frames taken; the writer waits on it
  std::atomic<std::uint32_t> writer_waits;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

namespace {

constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(RingHeader) <= kHeaderBytes);
// About 5 us: long enough to catch the next frame of a burst, short enough not to take a core from
// the engine.
constexpr int kSpins = 200;

void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t seen, absl::Duration timeout) {
  const timespec limit = absl::ToTimespec(timeout);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}
void FutexWake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

absl::Status Errno(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

std::uint64_t RandomNonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// Waits until `word` differs from `seen`: spins, announces itself in `waits`, sleeps. May return
// early, by the wake-up of a wait before this one.
void WaitForChange(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                   std::atomic<std::uint32_t>& waits, const std::atomic<bool>& stopped,
                   absl::Duration timeout) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (word.load(std::memory_order_acquire) != seen || stopped.load()) return;
    Pause();
  }
  waits.store(1, std::memory_order_seq_cst);
  if (word.load(std::memory_order_seq_cst) == seen && !stopped.load()) {
    FutexWait(word, seen, timeout);
  }
  waits.store(0, std::memory_order_relaxed);
}

}  // namespace

RingMemory::~RingMemory() {
  munmap(base_, bytes_);
  close(fd_);
}

std::byte* RingMemory::slot(std::uint32_t index, std::size_t slot_bytes) const {
  return static_cast<std::byte*>(base_) + kHeaderBytes + index * slot_bytes;
}

absl::StatusOr<std::unique_ptr<RingWriter>> RingWriter::Create(std::uint32_t num_slots,
                                                               std::size_t slot_bytes) {
  const std::size_t bytes = kHeaderBytes + num_slots * slot_bytes;
  if (num_slots == 0 || num_slots > kMaxSlots || bytes > kMaxRingBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("no ring of %d slots of %d bytes can be made", num_slots, slot_bytes));
  }
  const int fd = memfd_create("baton-kv-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Errno("memfd_create");
  // Sealed before anybody maps it: a size that cannot change cannot make an access fault.
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const absl::Status status = Errno("sizing shared memory");
    close(fd);
    return status;
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    const absl::Status status = Errno("mapping shared memory");
    close(fd);
    return status;
  }
  auto memory = std::make_unique<RingMemory>(fd, base, bytes);
  const std::uint64_t nonce = RandomNonce();
  RingHeader* header = memory->header();
  header->nonce = nonce;
  header->num_slots = num_slots;
  header->slot_bytes = static_cast<std::uint32_t>(slot_bytes);
  header->magic = kRingMagic;
  return std::unique_ptr<RingWriter>(
      new RingWriter(std::move(memory), num_slots, slot_bytes, nonce));
}

RingWriter::RingWriter(std::unique_ptr<RingMemory> memory, std::uint32_t num_slots,
                       std::size_t slot_bytes, std::uint64_t nonce)
    : memory_(std::move(memory)), num_slots_(num_slots), slot_bytes_(slot_bytes), nonce_(nonce) {}

std::string RingWriter::path() const {
  return absl::StrCat("/proc/", getpid(), "/fd/", memory_->fd());
}

std::byte* RingWriter::Reserve() {
  const std::uint32_t full = head_ - memory_->header()->tail.load(std::memory_order_acquire);
  if (full >= num_slots_) return nullptr;
  return memory_->slot(head_ % num_slots_, slot_bytes_);
}

void RingWriter::Publish(std::size_t size) {
  RingHeader* header = memory_->header();
  header->lengths[head_ % num_slots_] = static_cast<std::uint32_t>(size);
  header->head.store(++head_, std::memory_order_seq_cst);
  if (header->reader_waits.load(std::memory_order_seq_cst) != 0) FutexWake(header->head);
}

void RingWriter::WaitForRoom(absl::Duration timeout) {
  RingHeader* header = memory_->header();
  const std::uint32_t tail = header->tail.load(std::memory_order_acquire);
  if (header->head.load(std::memory_order_acquire) - tail < num_slots_) return;
  WaitForChange(header->tail, tail, header->writer_waits, stopped_, timeout);
}

void RingWriter::Stop() {
  stopped_.store(true);
  FutexWake(memory_->header()->tail);
}

absl::StatusOr<std::unique_ptr<RingReader>> RingReader::Open(const std::string& path,
                                                             std::uint64_t nonce) {
  if (path.rfind("/proc/", 0) != 0) {
    return absl::UnavailableError("the sender's shared memory has a path that is not below /proc");
  }
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return Errno("opening the sender's shared memory");
  struct stat info {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &info) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      info.st_size < static_cast<off_t>(kHeaderBytes) ||
      info.st_size > static_cast<off_t>(kMaxRingBytes)) {
    close(fd);
    return absl::UnavailableError("the sender's shared memory is not a sealed ring");
  }
  const auto bytes = static_cast<std::size_t>(info.st_size);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    const absl::Status status = Errno("mapping the sender's shared memory");
    close(fd);
    return status;
  }
  auto memory = std::make_unique<RingMemory>(fd, base, bytes);
  const RingHeader* header = memory->header();
  const std::uint32_t num_slots = header->num_slots;
  const std::size_t slot_bytes = header->slot_bytes;
  if (header->magic != kRingMagic || header->nonce != nonce || num_slots == 0 ||
      num_slots > kMaxSlots || kHeaderBytes + num_slots * slot_bytes != bytes) {
    return absl::UnavailableError("the sender's shared memory is another one than it means");
  }
  return std::unique_ptr<RingReader>(new RingReader(std::move(memory), num_slots, slot_bytes));
}

RingReader::RingReader(std::unique_ptr<RingMemory> memory, std::uint32_t num_slots,
                       std::size_t slot_bytes)
    : memory_(std::move(memory)), num_slots_(num_slots), slot_bytes_(slot_bytes) {}

absl::StatusOr<std::span<const std::byte>> RingReader::Front(absl::Duration timeout) {
  RingHeader* header = memory_->header();
  std::uint32_t head = header->head.load(std::memory_order_acquire);
  if (head == tail_) {
    const absl::Time deadline = absl::Now() + timeout;
    absl::Duration left = timeout;
    do {
      WaitForChange(header->head, tail_, header->reader_waits, stopped_, left);
      head = header->head.load(std::memory_order_acquire);
      left = deadline - absl::Now();
    } while (head == tail_ && !stopped() && left > absl::ZeroDuration());
  }
  if (head == tail_ || stopped()) return std::span<const std::byte>();
  const std::uint32_t length = header->lengths[tail_ % num_slots_];
  if (head - tail_ > num_slots_ || length == 0 || length > slot_bytes_) {
    return absl::DataLossError(absl::StrFormat(
        "shared-memory ring out of order: %d frames in %d slots, %d bytes in a slot of %d",
        head - tail_, num_slots_, length, slot_bytes_));
  }
  return std::span<const std::byte>(memory_->slot(tail_ % num_slots_, slot_bytes_), length);
}

void RingReader::Pop() {
  RingHeader* header = memory_->header();
  header->tail.store(++tail_, std::memory_order_seq_cst);
  if (header->writer_waits.load(std::memory_order_seq_cst) != 0) FutexWake(header->tail);
}

void RingReader::Stop() {
  stopped_.store(true);
  FutexWake(memory_->header()->head);
}

}  // namespace baton::kvtransfer
