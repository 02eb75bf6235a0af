#include "engine/model_runner.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/golden_engine.h"
#include "tests/support/random_checkpoint.h"

namespace baton::engine {
namespace {

using testing::GoldenEngine;

class ModelRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto engine = GoldenEngine::Create(
        testing::MakeRandomCheckpoint(testing::TinyMetadata(), checkpoint::DType::kF32, 1),
        {.block_size = 4, .max_rows = 8, .kv_tokens = 64});
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  absl::Status Step(const std::vector<SequenceStep>& steps) {
    return engine_->runner().Step(steps, engine_->kv(), {});
  }

  const std::vector<std::int32_t> tokens_ = {5, 6, 7, 8, 9};
  const std::vector<BlockId> blocks_ = {3, 1};
  std::unique_ptr<GoldenEngine> engine_;
};

TEST_F(ModelRunnerTest, TellsOfEachLayerOnceInOrderWhenItsKvIsWritten) {
  const SequenceStep step{.tokens = tokens_, .block_table = blocks_};
  std::vector<int> layers;
  std::vector<bool> written;

  const absl::Status status = engine_->runner().Step(
      std::span(&step, 1), engine_->kv(), {.on_layer = [&](int layer) {
        layers.push_back(layer);
        const auto* values = reinterpret_cast<const float*>(engine_->kv().Block(layer, 3).data());
        written.push_back(values[0] != 0.0f);
      }});

  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(layers, (std::vector<int>{0, 1}));
  EXPECT_EQ(written, (std::vector<bool>{true, true}));
}

TEST_F(ModelRunnerTest, LaterLayersAreUntouchedWhenALayerIsToldOf) {
  const SequenceStep step{.tokens = tokens_, .block_table = blocks_};
  float second_layer_then = 1.0f;

  const absl::Status status = engine_->runner().Step(
      std::span(&step, 1), engine_->kv(), {.on_layer = [&](int layer) {
        if (layer != 0) return;
        second_layer_then = *reinterpret_cast<const float*>(engine_->kv().Block(1, 3).data());
      }});

  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(second_layer_then, 0.0f);
}

TEST_F(ModelRunnerTest, GivesLogitsOfTheRowsAskedFor) {
  const std::vector<BlockId> other_blocks = {4}, third_blocks = {5};
  const std::vector<SequenceStep> steps = {
      {.tokens = std::span(tokens_).first(3), .block_table = blocks_, .logits = LogitRows::kAll},
      {.tokens = std::span(tokens_).first(2), .block_table = other_blocks},
      {.tokens = std::span(tokens_).first(2),
       .block_table = third_blocks,
       .logits = LogitRows::kLast},
  };
  std::vector<std::pair<int, int>> rows;

  const absl::Status status = engine_->runner().Step(
      steps, engine_->kv(), {.on_logits = [&](int index, int row, std::span<float> logits) {
        EXPECT_EQ(logits.size(), 131u);
        rows.emplace_back(index, row);
      }});

  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(rows, (std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {0, 2}, {2, 1}}));
}

TEST_F(ModelRunnerTest, RefusesStepsThatCannotBeComputed) {
  const std::vector<std::int32_t> foreign = {5, 131}, negative = {-1}, many(9, 1);
  const std::vector<BlockId> outside = {16}, short_table = {0}, long_table(64, 0);
  const std::vector<std::pair<std::string, SequenceStep>> cases = {
      {"no tokens", {.tokens = {}, .block_table = blocks_}},
      {"token id outside", {.tokens = foreign, .block_table = blocks_}},
      {"token id outside", {.tokens = negative, .block_table = blocks_}},
      {"block table too short", {.tokens = tokens_, .block_table = short_table}},
      {"block id out of range",
       {.tokens = negative.empty() ? tokens_ : std::span(tokens_).first(1),
        .block_table = outside}},
      {"position out of range",
       {.tokens = tokens_, .start_position = 252, .block_table = long_table}},
      {"position out of range", {.tokens = tokens_, .start_position = -1, .block_table = blocks_}},
      {"rows of a step", {.tokens = many, .block_table = long_table}},
  };
  for (const auto& [message, step] : cases) {
    const absl::Status status = Step({step});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_NE(std::string(status.message()).find(message), std::string::npos) << status;
  }
  EXPECT_EQ(Step({}).code(), absl::StatusCode::kInvalidArgument);
}

// Through windows of 6 the row at position 13 sees from 8 on, which is block 2 of 4 tokens each.
class WindowedModelRunnerTest : public ::testing::TestWithParam<testing::Backend> {
 protected:
  static std::unique_ptr<GoldenEngine> MakeEngine(std::vector<bool> windowed_layers) {
    auto metadata = testing::TinyMetadata();
    metadata.sliding_window = 6;
    metadata.windowed_layers = std::move(windowed_layers);
    auto engine =
        GoldenEngine::Create(testing::MakeRandomCheckpoint(metadata, checkpoint::DType::kF32, 1),
                             {.backend = GetParam(), .block_size = 4, .max_rows = 16});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }
  // Logits after 14 tokens, the last of them computed alone through `table`.
  static absl::StatusOr<std::vector<float>> LastLogits(GoldenEngine& engine,
                                                       const std::vector<BlockId>& table,
                                                       const std::vector<BlockId>& spoilt) {
    const std::vector<std::int32_t> tokens = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
    const std::vector<BlockId> whole = {0, 1, 2, 3};
    const SequenceStep prompt{.tokens = std::span(tokens).first(13), .block_table = whole};
    absl::Status status = engine.runner().Step({&prompt, 1}, engine.kv(), {});
    EXPECT_TRUE(status.ok()) << status;
    for (int layer = 0; layer < 2; ++layer) {
      for (const BlockId block : spoilt) {
        for (std::byte& byte : engine.kv().Block(layer, block)) byte = std::byte{0xff};  // NaN
      }
    }
    std::vector<float> result;
    const SequenceStep last{.tokens = std::span(tokens).last(1),
                            .start_position = 13,
                            .block_table = table,
                            .logits = LogitRows::kLast};
    status = engine.runner().Step({&last, 1}, engine.kv(),
                                  {.on_logits = [&](int, int, std::span<float> logits) {
                                    result.assign(logits.begin(), logits.end());
                                  }});
    if (!status.ok()) return status;
    return result;
  }
};

TEST_P(WindowedModelRunnerTest, NeedsNoBlockThatEveryLayersWindowHides) {
  const auto engine = MakeEngine({true, true});
  ASSERT_NE(engine, nullptr);

  const auto whole = LastLogits(*engine, {0, 1, 2, 3}, {});
  const auto spoilt = LastLogits(*engine, {0, 1, 2, 3}, {0, 1});
  const auto with_holes = LastLogits(*engine, {kNoBlock, kNoBlock, 2, 3}, {0, 1});

  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(*spoilt, *whole);
  ASSERT_TRUE(with_holes.ok()) << with_holes.status();
  EXPECT_EQ(*with_holes, *whole);
}

TEST_P(WindowedModelRunnerTest, RefusesAHoleThatARowSees) {
  const auto windowed = MakeEngine({true, true}), mixed = MakeEngine({true, false});

  const auto hidden_too_much = LastLogits(*windowed, {kNoBlock, kNoBlock, kNoBlock, 3}, {});
  const auto seen_in_one_layer = LastLogits(*mixed, {kNoBlock, 1, 2, 3}, {});

  for (const auto& result : {hidden_too_much, seen_in_one_layer}) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(result.status().message().find("block id out of range: -1"), absl::string_view::npos)
        << result.status();
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, WindowedModelRunnerTest,
                         ::testing::Values(testing::Backend::kReference, testing::Backend::kCpu),
                         [](const auto& tested) {
                           return tested.param == testing::Backend::kCpu ? "Cpu" : "Reference";
                         });

TEST_F(ModelRunnerTest, RefusesAnotherModelsPool) {
  KvLayout layout = engine_->kv().layout();
  ++layout.num_layers;
  auto pool = KvPool::Create(layout, 4);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const SequenceStep step{.tokens = tokens_, .block_table = blocks_};

  const absl::Status status = engine_->runner().Step(std::span(&step, 1), **pool, {});

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(ModelRunnerLoadTest, NamesATensorThatIsMissing) {
  auto metadata = testing::TinyMetadata();
  auto plan = MakeModelPlan(metadata, 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  plan->layers.push_back(plan->layers.back());

  const auto runner =
      ModelRunner::Load(testing::MakeRandomCheckpoint(metadata, checkpoint::DType::kF32, 1), *plan,
                        MakeReferenceOps(), 8, nullptr);

  EXPECT_EQ(runner.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(runner.status().message().find("layers.2."), absl::string_view::npos)
      << runner.status();
}

}  // namespace
}  // namespace baton::engine
