#include "kvtransfer/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton::kvtransfer {
namespace {

TEST(Crc32cTest, MatchesTheVectorsOfRfc3720) {
  EXPECT_EQ(Crc32c(0, std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(0, std::string(32, '\xff').data(), 32), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u);
}

TEST(Crc32cTest, BothFormsAgreeAndContinue) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::string bytes(random() % 300, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::size_t cut = bytes.empty() ? 0 : random() % bytes.size();

    const std::uint32_t whole = Crc32cPortable(0, bytes.data(), bytes.size());

    EXPECT_EQ(Crc32c(0, bytes.data(), bytes.size()), whole);
    EXPECT_EQ(Crc32c(Crc32c(0, bytes.data(), cut), bytes.data() + cut, bytes.size() - cut), whole);
  }
}

}  // namespace
}  // namespace baton::kvtransfer
