#include "kvtransfer/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton::kvtransfer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ModelFingerprint SomeFingerprint() {
  return {.model = "abc",
          .compute = "fast",
          .kv_dtype = "f16",
          .num_layers = 30,
          .num_kv_heads = 3,
          .head_dim = 64,
          .block_size = 16};
}

TEST(FingerprintTest, AcceptsEqualOnes) {
  EXPECT_TRUE(CheckFingerprints("p", SomeFingerprint(), "d", SomeFingerprint()).ok());
}

TEST(FingerprintTest, NamesBothSidesAndEveryFieldThatDiffers) {
  ModelFingerprint other = SomeFingerprint();
  other.kv_dtype = "f32";
  other.block_size = 32;
  other.windows = std::vector<std::int32_t>(30, 512);
  other.windows[29] = 0;

  const absl::Status status = CheckFingerprints("prefill-0", SomeFingerprint(), "decode-1", other);

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(status.message().data(), status.message().size());
  EXPECT_THAT(message, HasSubstr("kv_dtype is f16 at prefill-0 and f32 at decode-1"));
  EXPECT_THAT(message, HasSubstr("block_size is 16 at prefill-0 and 32 at decode-1"));
  EXPECT_THAT(message, HasSubstr("windows is none at prefill-0 and 512,512,"));
  EXPECT_THAT(message, Not(HasSubstr("head_dim")));
}

}  // namespace
}  // namespace baton::kvtransfer
