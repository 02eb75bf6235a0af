#include "kvtransfer/frame.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "kvtransfer/crc32c.h"

namespace baton::kvtransfer {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

absl::StatusOr<Message> RoundTrip(const Message& message) {
  const std::string frame = EncodeMessage(message);
  auto header = DecodeFrameHeader(Bytes(frame));
  if (!header.ok()) return header.status();
  return DecodeMessage(*header, Bytes(frame).subspan(kFrameHeaderBytes));
}

template <class Body>
Body BodyOf(const Body& body) {
  auto message = RoundTrip({.transfer_id = 5, .incarnation = 77, .body = body});
  EXPECT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->transfer_id, 5u);
  EXPECT_EQ(message->incarnation, 77u);
  return std::get<Body>(message->body);
}

TEST(FrameTest, CarriesAHello) {
  const Hello hello{.worker_id = "p-0",
                    .incarnation = 1,
                    .expected_worker_id = "d-0",
                    .expected_incarnation = 2,
                    .fingerprint = {.model = "m",
                                    .compute = "fast",
                                    .kv_dtype = "f16",
                                    .num_layers = 30,
                                    .num_kv_heads = 3,
                                    .head_dim = 64,
                                    .windows = {1024, 0, 1024}},
                    .cut = {.block_size = 32, .tensor_parallel_size = 2},
                    .host = {.boot_id = "b", .ipc_namespace = "i", .mount_namespace = "n"},
                    .ring = {.path = "/proc/1/fd/3", .nonce = 99}};

  const Hello out = BodyOf(hello);

  EXPECT_EQ(out.worker_id, hello.worker_id);
  EXPECT_EQ(out.expected_worker_id, hello.expected_worker_id);
  EXPECT_EQ(out.expected_incarnation, hello.expected_incarnation);
  EXPECT_EQ(out.fingerprint, hello.fingerprint);
  EXPECT_EQ(out.cut, hello.cut);
  EXPECT_EQ(out.host, hello.host);
  EXPECT_EQ(out.ring.path, hello.ring.path);
  EXPECT_EQ(out.ring.nonce, hello.ring.nonce);
}

TEST(FrameTest, CarriesTheHandoffRecord) {
  FinishTransfer finish{.num_blocks = 60, .record = {}};
  finish.record.first_token = {.token = 42, .logprob = -0.5f, .top = {{42, -0.5f}, {7, -1.25f}}};
  finish.record.finish = FinishReason::kStop;

  const FinishTransfer out = BodyOf(finish);

  EXPECT_EQ(out.num_blocks, 60);
  EXPECT_EQ(out.record.first_token.token, 42);
  EXPECT_EQ(out.record.first_token.logprob, -0.5f);
  ASSERT_EQ(out.record.first_token.top.size(), 2u);
  EXPECT_EQ(out.record.first_token.top[1].token, 7);
  EXPECT_EQ(out.record.first_token.top[1].logprob, -1.25f);
  EXPECT_EQ(out.record.finish, FinishReason::kStop);
}

TEST(FrameTest, CarriesTheOtherMessages) {
  EXPECT_EQ(BodyOf(BeginTransfer{.num_layers = 3, .num_blocks = 4}).num_blocks, 4);
  EXPECT_EQ(BodyOf(AbortTransfer{.why = absl::CancelledError("gone")}).why,
            absl::CancelledError("gone"));
  EXPECT_EQ(BodyOf(Refused{.why = absl::DataLossError("lost")}).why, absl::DataLossError("lost"));
  const Welcome welcome = BodyOf(Welcome{.worker_id = "d",
                                         .transport = "shm",
                                         .transport_reason = "same host",
                                         .cut = {.block_size = 64, .tensor_parallel_size = 4}});
  EXPECT_EQ(welcome.transport, "shm");
  EXPECT_EQ(welcome.cut, (KvCut{.block_size = 64, .tensor_parallel_size = 4}));
  BodyOf(RenewLease{});
  BodyOf(Acknowledged{});
  BodyOf(LeaseRenewed{});
}

TEST(FrameTest, CarriesADataHeader) {
  const DataHeader header{.transfer_id = 3,
                          .incarnation = 4,
                          .rank = 300,
                          .layer = 5,
                          .first_block = 6,
                          .num_blocks = 7,
                          .checksummed = true};

  auto decoded = DecodeFrameHeader(EncodeDataHeader(header, 100));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(decoded->is_data);
  EXPECT_EQ(decoded->data, header);
  EXPECT_EQ(decoded->body_bytes, 7u * 104);
}

// Property: no damaged byte and no cut goes unnoticed, and none crashes.
TEST(FrameTest, NoticesDamage) {
  const std::string frame =
      EncodeMessage({.transfer_id = 1,
                     .incarnation = 2,
                     .body = BeginTransfer{.num_layers = 3, .num_blocks = 4}});
  for (std::size_t at = 0; at < frame.size(); ++at) {
    std::string damaged = frame;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    auto header = DecodeFrameHeader(Bytes(damaged));
    EXPECT_EQ(header.ok(), at >= kFrameHeaderBytes) << "byte " << at;
    if (!header.ok()) continue;
    EXPECT_EQ(DecodeMessage(*header, Bytes(damaged).subspan(kFrameHeaderBytes)).status().code(),
              absl::StatusCode::kDataLoss)
        << "byte " << at;
  }
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const std::string cut = frame.substr(0, size);
    auto header = DecodeFrameHeader(Bytes(cut));
    if (!header.ok()) continue;
    EXPECT_FALSE(DecodeMessage(*header, Bytes(cut).subspan(kFrameHeaderBytes)).ok()) << size;
  }
}

TEST(FrameTest, SurvivesRandomBodies) {
  const std::string frame = EncodeMessage({.transfer_id = 0, .incarnation = 0, .body = Hello{}});
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::string body(random() % 64, '\0');
    for (char& c : body) c = static_cast<char>(random());
    auto header = DecodeFrameHeader(Bytes(frame));
    ASSERT_TRUE(header.ok());
    header->type = 1 + random() % 9;
    header->body_bytes = static_cast<std::uint32_t>(body.size());
    header->body_checksum = Crc32c(0, body.data(), body.size());

    const auto message = DecodeMessage(*header, Bytes(body));

    EXPECT_TRUE(message.ok() || message.status().code() == absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace baton::kvtransfer
