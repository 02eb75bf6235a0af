#include "kvtransfer/shm_ring.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace baton::kvtransfer {
namespace {

constexpr std::size_t kSlotBytes = 4096;

struct Ring {
  explicit Ring(std::uint32_t num_slots = 4) {
    auto made = RingWriter::Create(num_slots, kSlotBytes);
    EXPECT_TRUE(made.ok()) << made.status();
    writer = *std::move(made);
    auto opened = RingReader::Open(writer->path(), writer->nonce());
    EXPECT_TRUE(opened.ok()) << opened.status();
    reader = *std::move(opened);
  }
  std::unique_ptr<RingWriter> writer;
  std::unique_ptr<RingReader> reader;
};

bool Write(RingWriter& writer, const std::string& text) {
  std::byte* slot = writer.Reserve();
  if (slot == nullptr) return false;
  std::memcpy(slot, text.data(), text.size());
  writer.Publish(text.size());
  return true;
}

std::string Read(RingReader& reader, absl::Duration timeout = absl::Seconds(10)) {
  auto frame = reader.Front(timeout);
  EXPECT_TRUE(frame.ok()) << frame.status();
  if (!frame.ok() || frame->empty()) return {};
  std::string text(reinterpret_cast<const char*>(frame->data()), frame->size());
  reader.Pop();
  return text;
}

TEST(ShmRingTest, CarriesFramesInOrderAndNoMoreThanItHasSlots) {
  Ring ring(2);
  EXPECT_TRUE(Write(*ring.writer, "one"));
  EXPECT_TRUE(Write(*ring.writer, "two"));
  EXPECT_FALSE(Write(*ring.writer, "three"));

  EXPECT_EQ(Read(*ring.reader), "one");
  EXPECT_TRUE(Write(*ring.writer, "three"));
  EXPECT_EQ(Read(*ring.reader), "two");
  EXPECT_EQ(Read(*ring.reader), "three");
  EXPECT_EQ(Read(*ring.reader, absl::Milliseconds(1)), "");
}

TEST(ShmRingTest, WakesTheOtherSide) {
  Ring ring(3);
  constexpr int kFrames = 20'000;
  std::thread writing([&] {
    for (int i = 0; i < kFrames;) {
      if (Write(*ring.writer, absl::StrCat("frame ", i))) {
        ++i;
      } else {
        ring.writer->WaitForRoom(absl::Seconds(10));
      }
    }
  });
  for (int i = 0; i < kFrames; ++i) ASSERT_EQ(Read(*ring.reader), absl::StrCat("frame ", i));
  writing.join();
}

TEST(ShmRingTest, StopEndsAWait) {
  Ring ring;
  std::thread reading([&] {
    auto frame = ring.reader->Front(absl::Minutes(1));
    EXPECT_TRUE(frame.ok() && frame->empty());
  });
  ring.reader->Stop();
  reading.join();
}

TEST(ShmRingTest, RefusesAPathThatIsNotThatRing) {
  Ring ring;
  EXPECT_EQ(RingReader::Open(ring.writer->path(), ring.writer->nonce() + 1).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(RingReader::Open("/etc/passwd", 0).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RingReader::Open("/proc/self/exe", 0).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RingReader::Open("/proc/1/fd/99999", 0).status().code(),
            absl::StatusCode::kUnavailable);
  const int unsealed = memfd_create("unsealed", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(unsealed, 1 << 20), 0);
  EXPECT_EQ(RingReader::Open(absl::StrCat("/proc/self/fd/", unsealed), 0).status().code(),
            absl::StatusCode::kUnavailable);
  close(unsealed);
}

// Property: whatever the writer scribbles over the counters and lengths, the reader answers an
// error or a span inside its slot, and never crashes.
TEST(ShmRingTest, TheReaderTrustsNothingInTheMemory) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Ring ring(4);
    Write(*ring.writer, "frame");
    // Reserve gives slot 1 now; the header is the page before slot 0.
    std::byte* header = ring.writer->Reserve() - kSlotBytes - 4096;
    for (int i = 0; i < 20; ++i) header[24 + random() % 600] = static_cast<std::byte>(random());

    for (int i = 0; i < 10; ++i) {
      auto frame = ring.reader->Front(absl::ZeroDuration());
      if (!frame.ok()) {
        EXPECT_EQ(frame.status().code(), absl::StatusCode::kDataLoss);
        break;
      }
      if (frame->empty()) break;
      ASSERT_LE(frame->size(), kSlotBytes);
      std::string copy(reinterpret_cast<const char*>(frame->data()), frame->size());
      ring.reader->Pop();
    }
  }
}

}  // namespace
}  // namespace baton::kvtransfer
