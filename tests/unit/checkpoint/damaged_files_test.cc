// Property: whatever happens to the bytes of a valid model file, opening it ends in a Status. Run
// under the address and undefined-behaviour sanitizers, this also shows that nothing is read out of
// bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/huggingface_config.h"
#include "checkpoint/inspect.h"
#include "checkpoint/safetensors_file.h"
#include "tests/support/checkpoint_inputs.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/safetensors_builder.h"

namespace baton::checkpoint {
namespace {

using testing::UseConfigBytes;
using testing::UseGgufBytes;
using testing::UseSafetensorsBytes;

// Flips bits, overwrites words with telling values, removes and repeats pieces, cuts the end.
std::vector<std::byte> Damaged(std::vector<std::byte> bytes, std::mt19937& random) {
  constexpr std::uint64_t kTelling[] = {0,        1,          0xFF,  0x7FFFFFFF, 0xFFFFFFFF,
                                        1u << 31, 1ull << 32, ~0ull, ~0ull >> 1, 1ull << 62};
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes && !bytes.empty(); ++i) {
    const std::size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] ^= static_cast<std::byte>(1u << (random() % 8));
        break;
      case 1: {
        const std::uint64_t value = kTelling[random() % std::size(kTelling)];
        const std::size_t width =
            std::min<std::size_t>(random() % 2 == 0 ? 4 : 8, bytes.size() - at);
        std::copy_n(reinterpret_cast<const std::byte*>(&value), width,
                    bytes.begin() + static_cast<long>(at));
        break;
      }
      case 2:
        bytes.resize(at);
        break;
      case 3: {
        const std::size_t count = std::min<std::size_t>(1 + random() % 16, bytes.size() - at);
        bytes.erase(bytes.begin() + static_cast<long>(at),
                    bytes.begin() + static_cast<long>(at + count));
        break;
      }
      default:
        bytes[at] = static_cast<std::byte>(random());
        break;
    }
  }
  return bytes;
}

// Most damage should hit the header, where it matters: the tensor data of the small files is
// longer.
std::vector<std::byte> HeaderDamaged(const std::vector<std::byte>& whole, std::size_t header,
                                     std::mt19937& random) {
  std::vector<std::byte> front(whole.begin(), whole.begin() + static_cast<long>(header));
  front = Damaged(std::move(front), random);
  front.insert(front.end(), whole.begin() + static_cast<long>(header), whole.end());
  return front;
}

std::size_t HeaderBytes(const std::vector<std::byte>& whole, std::size_t data_bytes) {
  return whole.size() - std::min(whole.size(), data_bytes);
}

TEST(DamagedFilesTest, GgufEndsInAStatus) {
  const testing::GgufBuilder builder = testing::SmallLlamaGguf();
  const std::vector<std::byte> whole = builder.Build();
  std::size_t data_bytes = 0;
  for (const auto& tensor : builder.tensors) data_bytes += (tensor.data.size() + 31) / 32 * 32;
  int refused = 0;

  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const std::vector<std::byte> bytes =
        HeaderDamaged(whole, HeaderBytes(whole, data_bytes), random);
    if (!UseGgufBytes(bytes)) ++refused;
  }

  EXPECT_GT(refused, 1000);  // the damage is real
  EXPECT_TRUE(UseGgufBytes(whole));
}

TEST(DamagedFilesTest, SafetensorsEndsInAStatus) {
  const testing::SafetensorsBuilder builder = testing::SmallLlamaSafetensors();
  const std::vector<std::byte> whole = builder.Build();
  const std::size_t header = 8 + builder.Header().size();
  int refused = 0;

  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    if (!UseSafetensorsBytes(HeaderDamaged(whole, header, random))) ++refused;
  }

  EXPECT_GT(refused, 1000);
  EXPECT_TRUE(UseSafetensorsBytes(whole));
}

TEST(DamagedFilesTest, ConfigEndsInAStatus) {
  const std::string text = testing::JsonText(testing::SmallLlamaConfig());
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  const std::vector<std::byte> whole(begin, begin + text.size());
  int refused = 0;

  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    if (!UseConfigBytes(Damaged(whole, random))) ++refused;
  }

  EXPECT_GT(refused, 1000);
  EXPECT_TRUE(UseConfigBytes(whole));
}

// Inputs that broke a parser once, or were made to: tests/fuzz/regressions/<parser>/*.
TEST(DamagedFilesTest, FormerFindingsStayFixed) {
  const std::filesystem::path root = BATON_SOURCE_DIR "/tests/fuzz/regressions";
  int replayed = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    SCOPED_TRACE(entry.path().string());
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    const std::string parser = entry.path().parent_path().filename().string();
    if (parser == "gguf") UseGgufBytes(bytes);
    if (parser == "safetensors") UseSafetensorsBytes(bytes);
    if (parser == "config_json") UseConfigBytes(bytes);
    ++replayed;
  }

  EXPECT_GT(replayed, 0) << "no regression inputs under " << root;
}

}  // namespace
}  // namespace baton::checkpoint
