#include "kvtransfer/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/tensor_parallel.h"

namespace baton::kvtransfer {
namespace {

// Rows (one head, one token, K or V) of 4 bytes unless said otherwise.
ModelFingerprint Model(int num_kv_heads, std::vector<std::int32_t> windows = {}) {
  return {.model = "m",
          .compute = "f32",
          .kv_dtype = "f16",
          .num_layers = windows.empty() ? 1 : static_cast<int>(windows.size()),
          .num_kv_heads = num_kv_heads,
          .head_dim = 2,
          .windows = std::move(windows)};
}

std::vector<BlockCopy> CopiesOf(const TransferPlan& plan, int rank, int layer, int block,
                                int num_tokens) {
  std::vector<BlockCopy> copies;
  plan.AppendCopies(rank, layer, block, num_tokens, &copies);
  return copies;
}

using Copies = std::vector<BlockCopy>;

TEST(TransferPlanTest, EqualCutsMoveEachBlockInOneCopy) {
  const KvCut cut{.block_size = 4, .tensor_parallel_size = 2};
  const TransferPlan plan(Model(4), cut, cut);

  for (const int rank : {0, 1}) {
    EXPECT_EQ(CopiesOf(plan, rank, 0, 3, 15), (Copies{{.source_offset = 0,
                                                       .destination_rank = rank,
                                                       .destination_block = 3,
                                                       .destination_offset = 0,
                                                       .bytes = 2 * 2 * 4 * 4}}));
  }
}

TEST(TransferPlanTest, ASplitKeepsTheHeadsOfARankTogether) {
  // 3 heads of 2 tokens at rank 0; 2 and 1 at the destination.
  const TransferPlan plan(Model(3), {.block_size = 2},
                          {.block_size = 2, .tensor_parallel_size = 2});

  EXPECT_EQ(CopiesOf(plan, 0, 0, 5, 12),
            (Copies{{0, 0, 5, 0, 16}, {24, 0, 5, 16, 16}, {16, 1, 5, 0, 8}, {40, 1, 5, 8, 8}}));
}

TEST(TransferPlanTest, SmallBlocksLieSideBySideInALargeOne) {
  const TransferPlan plan(Model(1), {.block_size = 2}, {.block_size = 4});

  EXPECT_EQ(CopiesOf(plan, 0, 0, 1, 7), (Copies{{0, 0, 0, 8, 8}, {8, 0, 0, 24, 8}}));
  EXPECT_EQ(CopiesOf(plan, 0, 0, 2, 7), (Copies{{0, 0, 1, 0, 8}, {8, 0, 1, 16, 8}}));
}

TEST(TransferPlanTest, ALargeBlockFillsOnlyTheSmallOnesThatThePromptHas) {
  const TransferPlan plan(Model(1), {.block_size = 8}, {.block_size = 2});

  // 5 tokens are 3 blocks of 2: the sixth token's row goes along, the last two have no place.
  EXPECT_EQ(CopiesOf(plan, 0, 0, 0, 5), (Copies{{0, 0, 0, 0, 8},
                                                {8, 0, 1, 0, 8},
                                                {16, 0, 2, 0, 8},
                                                {32, 0, 0, 8, 8},
                                                {40, 0, 1, 8, 8},
                                                {48, 0, 2, 8, 8}}));
}

TEST(TransferPlanTest, OfAReplicatedHeadTheFirstHolderSendsAndEveryHolderReceives) {
  const TransferPlan plan(Model(2), {.block_size = 2, .tensor_parallel_size = 4},
                          {.block_size = 2, .tensor_parallel_size = 3});

  EXPECT_EQ(plan.ShapeOf(2).sends, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(plan.ShapeOf(2).num_senders(), 2);
  EXPECT_EQ(CopiesOf(plan, 0, 0, 0, 2), (Copies{{0, 0, 0, 0, 16}, {0, 1, 0, 0, 16}}));
  EXPECT_TRUE(CopiesOf(plan, 1, 0, 0, 2).empty());
  EXPECT_EQ(CopiesOf(plan, 2, 0, 0, 2), (Copies{{0, 2, 0, 0, 16}}));
}

std::vector<int> FirstBlocks(const std::vector<std::int32_t>& windows, int source, int destination,
                             int num_tokens) {
  return TransferPlan(Model(1, windows), {.block_size = source}, {.block_size = destination})
      .ShapeOf(num_tokens)
      .first_blocks;
}

// The first row after a prompt of n tokens stands at position n and sees [n - w + 1, n].
TEST(TransferPlanTest, BlocksBehindEveryLaterRowsWindowDoNotMove) {
  const std::vector<std::int32_t> windows = {0, 1, 4, 5, 100};

  EXPECT_EQ(FirstBlocks(windows, 4, 4, 3), (std::vector<int>{0, 0, 0, 0, 0}));
  EXPECT_EQ(FirstBlocks(windows, 4, 4, 7), (std::vector<int>{0, 1, 1, 0, 0}));
  EXPECT_EQ(FirstBlocks(windows, 4, 4, 8), (std::vector<int>{0, 2, 1, 1, 0}));
  EXPECT_EQ(FirstBlocks(windows, 4, 4, 102), (std::vector<int>{0, 25, 24, 24, 0}));
  EXPECT_EQ(FirstBlocks(windows, 4, 4, 103), (std::vector<int>{0, 25, 25, 24, 1}));
  EXPECT_EQ(FirstBlocks({}, 4, 4, 103), (std::vector<int>{0}));
  EXPECT_EQ(FirstBlocks(windows, 4, 16, 103), (std::vector<int>{0, 25, 25, 24, 1}));
  EXPECT_EQ(FirstBlocks(windows, 16, 4, 103), (std::vector<int>{0, 6, 6, 6, 0}));
  // Nothing of the second layer is seen, and 104 tokens fill blocks of 4: nothing moves.
  EXPECT_EQ(FirstBlocks(windows, 16, 4, 104), (std::vector<int>{0, 7, 6, 6, 0}));
}

TEST(TransferPlanTest, SmallBlocksBehindTheWindowStayAlthoughTheLargeOneMoves) {
  const TransferPlan plan(Model(1, {6}), {.block_size = 8}, {.block_size = 2});

  // Position 8 sees from 3 on: the blocks of tokens 2.. of 0..7.
  EXPECT_EQ(CopiesOf(plan, 0, 0, 0, 8), (Copies{{8, 0, 1, 0, 8},
                                                {16, 0, 2, 0, 8},
                                                {24, 0, 3, 0, 8},
                                                {40, 0, 1, 8, 8},
                                                {48, 0, 2, 8, 8},
                                                {56, 0, 3, 8, 8}}));
}

// ---- the property

struct Scene {
  ModelFingerprint model;
  KvCut source;
  KvCut destination;
  int num_tokens = 0;

  std::string Describe() const {
    return absl::StrFormat("%d heads, tp %d -> %d, blocks of %d -> %d, %d tokens",
                           model.num_kv_heads, source.tensor_parallel_size,
                           destination.tensor_parallel_size, source.block_size,
                           destination.block_size, num_tokens);
  }
};

Scene RandomScene(std::mt19937& random) {
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  Scene scene;
  scene.model = Model(draw(1, 16));
  scene.model.num_layers = draw(1, 3);
  scene.model.head_dim = draw(1, 3);
  scene.model.kv_dtype = draw(0, 1) == 0 ? "bf16" : "f32";
  const int small = draw(1, 12), large = small * draw(1, 4);
  scene.source = {.block_size = small, .tensor_parallel_size = draw(1, 8)};
  scene.destination = {.block_size = large, .tensor_parallel_size = draw(1, 8)};
  if (draw(0, 1) == 0) std::swap(scene.source.block_size, scene.destination.block_size);
  scene.num_tokens = draw(1, 100);
  if (draw(0, 2) == 0) return scene;
  for (int layer = 0; layer < scene.model.num_layers; ++layer) {
    scene.model.windows.push_back(draw(0, scene.num_tokens + 3));
  }
  return scene;
}

// The bytes of one rank's blocks of a prompt in one layer, and how often each was written.
struct Bytes {
  std::vector<std::uint8_t> value;
  std::vector<int> writes;
};

// Reads and writes a rank's blocks as [block][K or V][head][token][byte].
class RankView {
 public:
  RankView(const Scene& scene, const KvCut& cut, int rank)
      : heads_(KvHeadsOfRank(scene.model.num_kv_heads, cut.tensor_parallel_size, rank)),
        block_size_(cut.block_size),
        row_bytes_(BlockBytes(scene.model, cut, rank) /
                   (2 * static_cast<std::size_t>(heads_.size()) * cut.block_size)) {}
  // Calls visit(K or V, head of the model, token of the prompt, byte, offset in the rank).
  template <class Visit>
  void ForEach(int num_blocks, const Visit& visit) const {
    std::size_t offset = 0;
    for (int block = 0; block < num_blocks; ++block) {
      for (int half = 0; half < 2; ++half) {
        for (int head = heads_.begin; head < heads_.end; ++head) {
          for (int token = 0; token < block_size_; ++token) {
            for (std::size_t byte = 0; byte < row_bytes_; ++byte) {
              visit(half, head, block * block_size_ + token, static_cast<int>(byte), offset++);
            }
          }
        }
      }
    }
  }

 private:
  IndexRange heads_;
  int block_size_;
  std::size_t row_bytes_;
};

std::uint8_t ValueOf(int half, int head, int token, int byte) {
  std::uint32_t mixed = static_cast<std::uint32_t>(((token * 16 + head) * 2 + half) * 16 + byte);
  mixed *= 2654435761u;
  return static_cast<std::uint8_t>(mixed >> 24);
}

using Spoil = std::function<void(Copies&)>;

// Carries a transfer of one layer out, byte by byte, with `spoil` applied to each block's copies,
// and says what is wrong with the destination; empty: nothing.
std::string WhatIsWrong(const Scene& scene, int layer, const Spoil& spoil = nullptr) {
  const TransferPlan plan(scene.model, scene.source, scene.destination);
  const TransferShape shape = plan.ShapeOf(scene.num_tokens);
  const int num_destination_blocks = scene.destination.BlocksFor(scene.num_tokens);
  std::vector<Bytes> to(scene.destination.tensor_parallel_size);
  std::vector<std::size_t> block_bytes;
  for (int rank = 0; rank < scene.destination.tensor_parallel_size; ++rank) {
    block_bytes.push_back(BlockBytes(scene.model, scene.destination, rank));
    to[rank].value.assign(block_bytes.back() * num_destination_blocks, 0);
    to[rank].writes.assign(to[rank].value.size(), 0);
  }
  for (int rank = 0; rank < scene.source.tensor_parallel_size; ++rank) {
    const std::size_t bytes = BlockBytes(scene.model, scene.source, rank);
    if (bytes != plan.source_block_bytes(rank)) return "the plan's blocks have another size";
    std::vector<std::uint8_t> from(bytes * shape.num_blocks);
    RankView(scene, scene.source, rank)
        .ForEach(shape.num_blocks, [&](int half, int head, int token, int byte, std::size_t at) {
          from[at] = ValueOf(half, head, token, byte);
        });
    for (int block = 0; block < shape.num_blocks; ++block) {
      Copies copies = CopiesOf(plan, rank, layer, block, scene.num_tokens);
      const bool expected = shape.sends[rank] && block >= shape.first_blocks[layer];
      if (expected == copies.empty()) return "copies and shape disagree about what moves";
      if (spoil != nullptr) spoil(copies);
      for (const BlockCopy& copy : copies) {
        const std::size_t at =
            copy.destination_block * block_bytes[copy.destination_rank] + copy.destination_offset;
        Bytes& rank_bytes = to[copy.destination_rank];
        if (copy.source_offset + copy.bytes > bytes || at + copy.bytes > rank_bytes.value.size() ||
            copy.destination_offset + copy.bytes > block_bytes[copy.destination_rank]) {
          return "a copy leaves its block";
        }
        for (std::size_t i = 0; i < copy.bytes; ++i) {
          rank_bytes.value[at + i] = from[block * bytes + copy.source_offset + i];
          ++rank_bytes.writes[at + i];
        }
      }
    }
  }
  // What the rows after the prompt see, and what shares the smaller side's blocks with it.
  const int grain = std::min(scene.source.block_size, scene.destination.block_size);
  const int window = scene.model.WindowOf(layer);
  const int seen = window == 0 ? 0 : std::max(0, scene.num_tokens - window + 1);
  const int first = seen - seen % grain;
  const int last = (scene.num_tokens + grain - 1) / grain * grain;
  std::string wrong;
  for (int rank = 0; rank < scene.destination.tensor_parallel_size; ++rank) {
    RankView(scene, scene.destination, rank)
        .ForEach(num_destination_blocks,
                 [&](int half, int head, int token, int byte, std::size_t at) {
                   const int expected = token >= first && token < last ? 1 : 0;
                   const bool right =
                       to[rank].writes[at] == expected &&
                       (expected == 0 || to[rank].value[at] == ValueOf(half, head, token, byte));
                   if (right || !wrong.empty()) return;
                   wrong = absl::StrFormat("rank %d, half %d, head %d, token %d: %d writes of %d",
                                           rank, half, head, token, to[rank].writes[at], expected);
                 });
  }
  return wrong;
}

TEST(TransferPlanTest, EveryByteArrivesExactlyOnceInItsPlaceInEveryRank) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const Scene scene = RandomScene(random);
    for (int layer = 0; layer < scene.model.num_layers; ++layer) {
      ASSERT_EQ(WhatIsWrong(scene, layer), "")
          << "seed " << seed << ", layer " << layer << ": " << scene.Describe();
    }
  }
}

TEST(TransferPlanTest, EqualCutsNeedOneCopyPerBlockAndHolder) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Scene scene = RandomScene(random);
    scene.destination = scene.source;
    const TransferPlan plan(scene.model, scene.source, scene.destination);
    int num_copies = 0;
    for (int rank = 0; rank < scene.source.tensor_parallel_size; ++rank) {
      for (const BlockCopy& copy : CopiesOf(
               plan, rank, 0, scene.source.BlocksFor(scene.num_tokens) - 1, scene.num_tokens)) {
        EXPECT_EQ(copy.bytes, plan.source_block_bytes(rank)) << "seed " << seed;
        ++num_copies;
      }
    }
    const bool moves =
        plan.ShapeOf(scene.num_tokens).first_blocks[0] < scene.source.BlocksFor(scene.num_tokens);
    EXPECT_EQ(num_copies, moves ? scene.source.tensor_parallel_size : 0) << "seed " << seed;
  }
}

// The property must be able to fail: each fault, planted into one block's copies of a transfer, has
// to be noticed in every scene where it changes anything.
void ExpectNoticed(const std::function<bool(Copies&, std::mt19937&)>& fault) {
  int num_planted = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const Scene scene = RandomScene(random);
    bool planted = false;
    const std::string wrong = WhatIsWrong(scene, 0, [&](Copies& copies) {
      if (!planted && !copies.empty() && random() % 4 == 0) planted = fault(copies, random);
    });
    EXPECT_EQ(planted, !wrong.empty()) << "seed " << seed << ": " << scene.Describe();
    num_planted += planted ? 1 : 0;
  }
  EXPECT_GT(num_planted, 50);
}

TEST(TransferPlanTest, ThePropertyNoticesAShiftedBlockIndex) {
  ExpectNoticed([](Copies& copies, std::mt19937& random) {
    ++copies[random() % copies.size()].destination_block;
    return true;
  });
}

TEST(TransferPlanTest, ThePropertyNoticesAShiftedOffset) {
  ExpectNoticed([](Copies& copies, std::mt19937& random) {
    BlockCopy& copy = copies[random() % copies.size()];
    if (copy.bytes < 2) return false;
    --copy.bytes;
    ++copy.destination_offset;
    return true;
  });
}

TEST(TransferPlanTest, ThePropertyNoticesTwoSwappedHeads) {
  ExpectNoticed([](Copies& copies, std::mt19937& random) {
    const std::size_t i = random() % copies.size(), j = random() % copies.size();
    if (copies[i].bytes != copies[j].bytes || copies[i].source_offset == copies[j].source_offset) {
      return false;
    }
    std::swap(copies[i].source_offset, copies[j].source_offset);
    return true;
  });
}

TEST(TransferPlanTest, ThePropertyNoticesACopyLeftOutOrDoneTwice) {
  ExpectNoticed([](Copies& copies, std::mt19937& random) {
    if (random() % 2 == 0) {
      copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(random() % copies.size()));
    } else {
      const BlockCopy again = copies[random() % copies.size()];
      copies.push_back(again);
    }
    return true;
  });
}

}  // namespace
}  // namespace baton::kvtransfer
