#include "kvtransfer/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton::kvtransfer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr KvCut kCut{.block_size = 16, .tensor_parallel_size = 1};

ModelFingerprint SomeFingerprint() {
  return {.model = "abc",
          .compute = "fast",
          .kv_dtype = "f16",
          .num_layers = 30,
          .num_kv_heads = 3,
          .head_dim = 64};
}

TEST(FingerprintTest, AcceptsEqualOnes) {
  const ModelFingerprint fingerprint = SomeFingerprint();
  EXPECT_TRUE(CheckSides({"p", fingerprint, kCut}, {"d", fingerprint, kCut}).ok());
}

TEST(FingerprintTest, NamesBothSidesAndEveryFieldThatDiffers) {
  ModelFingerprint other = SomeFingerprint();
  other.kv_dtype = "f32";
  other.windows = std::vector<std::int32_t>(30, 512);
  other.windows[29] = 0;

  const ModelFingerprint ours = SomeFingerprint();
  const absl::Status status = CheckSides({"prefill-0", ours, kCut}, {"decode-1", other, kCut});

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(status.message().data(), status.message().size());
  EXPECT_THAT(message, HasSubstr("kv_dtype is f16 at prefill-0 and f32 at decode-1"));
  EXPECT_THAT(message, HasSubstr("windows is none at prefill-0 and 512,512,"));
  EXPECT_THAT(message, Not(HasSubstr("head_dim")));
}

std::string CutError(const KvCut& sender, const KvCut& receiver) {
  const ModelFingerprint fingerprint = SomeFingerprint();
  const absl::Status status =
      CheckSides({"prefill-0", fingerprint, sender}, {"decode-1", fingerprint, receiver});
  EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
  return std::string(status.message());
}

TEST(FingerprintTest, AcceptsCutsThatCanBeMadeIntoEachOther) {
  EXPECT_EQ(CutError({16, 1}, {16, 4}), "");
  EXPECT_EQ(CutError({16, 3}, {64, 2}), "");
  EXPECT_EQ(CutError({256, 8}, {32, 16}), "");
}

TEST(FingerprintTest, RefusesCutsThatCannotAndNamesBothSides) {
  EXPECT_EQ(CutError({16, 1}, {24, 1}),
            "KV block sizes do not fit: 16 tokens at prefill-0, 24 at decode-1; make one a "
            "multiple of the other");
  EXPECT_THAT(CutError({0, 1}, {16, 1}), HasSubstr("block size out of range: 0 tokens at prefill"));
  EXPECT_THAT(CutError({16, 1}, {512, 1}), HasSubstr("512 tokens at decode-1, must be 1..256"));
  EXPECT_THAT(CutError({16, 0}, {16, 1}), HasSubstr("size out of range: 0 at prefill-0"));
  EXPECT_THAT(CutError({16, 1}, {16, 300}), HasSubstr("300 at decode-1, must be 1..256"));
}

}  // namespace
}  // namespace baton::kvtransfer
