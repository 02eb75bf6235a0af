#include "engine/kv/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace baton::engine {
namespace {

KvLayout SmallLayout() {
  return {.num_layers = 3, .num_kv_heads = 2, .head_dim = 8, .block_size = 4};
}

TEST(KvPoolTest, BlocksAreDistinctAndContiguousWithinALayer) {
  auto pool = KvPool::Create(SmallLayout(), /*num_blocks=*/5);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const std::size_t block_bytes = 2 * 2 * 4 * 8 * sizeof(std::uint16_t);

  for (int layer = 0; layer < 3; ++layer) {
    for (int block = 0; block < 5; ++block) {
      const auto bytes = (*pool)->Block(layer, block);
      ASSERT_EQ(bytes.size(), block_bytes);
      std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(16 * layer + block));
    }
  }

  for (int layer = 0; layer < 3; ++layer) {
    for (int block = 0; block < 5; ++block) {
      const std::byte* begin = (*pool)->LayerData(layer) + block_bytes * block;
      EXPECT_TRUE(std::all_of(
          begin, begin + block_bytes,
          [&](std::byte value) { return value == static_cast<std::byte>(16 * layer + block); }))
          << "layer " << layer << ", block " << block;
    }
  }
}

TEST(KvPoolTest, StartsZeroed) {
  auto pool = KvPool::Create(SmallLayout(), /*num_blocks=*/1);
  ASSERT_TRUE(pool.ok()) << pool.status();

  const auto bytes = (*pool)->Block(0, 0);

  EXPECT_TRUE(
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(KvPoolTest, RefusesPoolsThatCannotExist) {
  KvLayout empty = SmallLayout();
  empty.head_dim = 0;

  EXPECT_EQ(KvPool::Create(SmallLayout(), 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvPool::Create(empty, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(KvPoolTest, SaysWhenTheSystemRefusesTheMemory) {
  KvLayout huge = SmallLayout();
  huge.head_dim = 1 << 20;
  huge.block_size = 1 << 10;

  const auto pool = KvPool::Create(huge, std::numeric_limits<int>::max() / 4);

  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted) << pool.status();
}

}  // namespace
}  // namespace baton::engine
