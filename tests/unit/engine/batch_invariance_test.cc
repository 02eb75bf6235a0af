// A row's bits do not depend on its company: the promise every backend makes, tested through the
// runner.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/tensor.h"
#include "engine/model_runner.h"
#include "tests/support/engine_setups.h"
#include "tests/support/golden_engine.h"
#include "tests/support/random_checkpoint.h"

namespace baton::engine {
namespace {

using checkpoint::DType;
using testing::EngineSetup;
using testing::GoldenEngine;

enum class Family : std::uint8_t {
  kLlama,
  kEverything,  // everything that a plan can say
  kGemma,       // mixed windows, soft caps, post norms, head norms, a head size of its own
  kMixtral,     // experts, many of them, weights not normalized
  kMistral,     // a window over more than one tile of keys
};

const char* FamilyName(Family family) {
  switch (family) {
    case Family::kLlama:
      return "";
    case Family::kEverything:
      return "_Everything";
    case Family::kGemma:
      return "_Gemma";
    case Family::kMixtral:
      return "_Mixtral";
    case Family::kMistral:
      return "_Mistral";
  }
  return "";
}

struct Case {
  EngineSetup setup;
  DType dtype;
  Family family = Family::kLlama;
};

void SetEverything(checkpoint::ModelMetadata& metadata) {
  metadata.norm_offset = 1.0f;
  metadata.attention_bias = metadata.output_bias = metadata.mlp_bias = true;
  metadata.qk_norm = metadata.post_norms = true;
  metadata.activation = Activation::kGeluTanh;
  metadata.embedding_scale = 16.0f;
  metadata.attention_softcap = 5.0f;
  metadata.logit_softcap = 8.0f;
  metadata.sliding_window = 7;
  metadata.windowed_layers = {true, false};
  metadata.local_rope = metadata.rope;
  metadata.local_rope->theta = 100.0f;
  metadata.num_experts = 6;
  metadata.experts_per_token = 2;
  metadata.expert_intermediate_size = 256;
}

void SetGemma(checkpoint::ModelMetadata& metadata) {
  metadata.num_heads = 32;
  metadata.num_kv_heads = 8;
  metadata.head_dim = metadata.rope.dim = 24;
  metadata.norm_offset = 1.0f;
  metadata.qk_norm = metadata.post_norms = true;
  metadata.activation = Activation::kGeluTanh;
  metadata.embedding_scale = 16.0f;
  metadata.attention_softcap = 5.0f;
  metadata.logit_softcap = 8.0f;
  metadata.sliding_window = 20;
  metadata.windowed_layers = {true, false};
}

void SetFamily(Family family, checkpoint::ModelMetadata& metadata) {
  switch (family) {
    case Family::kLlama:
      return;
    case Family::kEverything:
      return SetEverything(metadata);
    case Family::kGemma:
      return SetGemma(metadata);
    case Family::kMixtral:
      metadata.num_experts = 11;
      metadata.experts_per_token = 3;
      metadata.expert_intermediate_size = 256;
      metadata.normalize_expert_weights = false;
      return;
    case Family::kMistral:
      metadata.sliding_window = 70;
      metadata.windowed_layers = {true, true};
      return;
  }
}

// A sequence being computed in some batching, its logits so far, and a block table in random order.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<BlockId> blocks;
  int num_computed = 0;
  std::vector<std::vector<float>> logits;  // [tokens][vocab]
};

class BatchInvarianceTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int kBlockSize = 4, kNumBlocks = 64;

  void SetUp() override {
    auto metadata = testing::TinyMetadata();
    // Whole blocks of every dtype under test; more KV heads than one vector holds anything for.
    metadata.hidden_size = 256;
    metadata.intermediate_size = 512;
    metadata.num_heads = 8;
    metadata.head_dim = 32;
    metadata.rope.dim = 32;
    metadata.tied_embeddings = false;
    SetFamily(GetParam().family, metadata);
    EngineSetup setup = GetParam().setup;
    setup.block_size = kBlockSize;
    setup.kv_tokens = kBlockSize * kNumBlocks;
    auto engine =
        GoldenEngine::Create(testing::MakeRandomCheckpoint(metadata, GetParam().dtype, 11,
                                                           GetParam().dtype == DType::kInt4),
                             setup);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  // Sequences of random tokens, whose blocks are a random part of the pool.
  std::vector<Sequence> RandomSequences(std::mt19937& random) {
    std::vector<BlockId> blocks(kNumBlocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    // Few long sequences or many short ones.
    const bool is_long =
        GetParam().family == Family::kMistral || GetParam().family == Family::kGemma;
    std::vector<Sequence> sequences(1 + random() % (is_long ? 2 : 5));
    for (Sequence& sequence : sequences) {
      sequence.tokens.resize(1 + random() % (is_long ? 125 : 45));
      for (auto& token : sequence.tokens) token = static_cast<std::int32_t>(random() % 131);
      const auto count = (sequence.tokens.size() + kBlockSize - 1) / kBlockSize;
      sequence.blocks.assign(blocks.end() - static_cast<std::ptrdiff_t>(count), blocks.end());
      blocks.resize(blocks.size() - count);
    }
    return sequences;
  }

  // One step: a chunk of chunk_size() tokens of each of `members`, in that order.
  template <class ChunkSize>
  void Step(const std::vector<Sequence*>& members, const ChunkSize& chunk_size) {
    std::vector<SequenceStep> steps;
    for (Sequence* sequence : members) {
      const int left = static_cast<int>(sequence->tokens.size()) - sequence->num_computed;
      const int count = std::clamp<int>(chunk_size(), 1, left);
      steps.push_back({.tokens = std::span(sequence->tokens).subspan(sequence->num_computed, count),
                       .start_position = sequence->num_computed,
                       .block_table = sequence->blocks,
                       .logits = LogitRows::kAll});
      sequence->num_computed += count;
    }
    const absl::Status status = engine_->runner().Step(
        steps, engine_->kv(), {.on_logits = [&](int index, int, std::span<float> logits) {
          members[index]->logits.emplace_back(logits.begin(), logits.end());
        }});
    ASSERT_TRUE(status.ok()) << status;
  }

  std::unique_ptr<GoldenEngine> engine_;
};

TEST_P(BatchInvarianceTest, LogitsAreTheSameBitsAloneAndInAnyBatchAndChunking) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<Sequence> alone = RandomSequences(random);
    std::vector<Sequence> together = alone;

    for (Sequence& sequence : alone) {
      Step({&sequence}, [&] { return static_cast<int>(sequence.tokens.size()); });
    }
    for (;;) {
      std::vector<Sequence*> members;
      for (Sequence& sequence : together) {
        const bool unfinished = sequence.num_computed < static_cast<int>(sequence.tokens.size());
        if (unfinished && random() % 4 != 0) members.push_back(&sequence);
      }
      std::shuffle(members.begin(), members.end(), random);
      if (!members.empty()) Step(members, [&] { return 1 + static_cast<int>(random() % 12); });
      if (std::all_of(together.begin(), together.end(), [](const Sequence& sequence) {
            return sequence.num_computed == static_cast<int>(sequence.tokens.size());
          })) {
        break;
      }
    }

    for (std::size_t i = 0; i < alone.size(); ++i) {
      ASSERT_EQ(alone[i].logits.size(), together[i].logits.size());
      for (std::size_t row = 0; row < alone[i].logits.size(); ++row) {
        ASSERT_EQ(alone[i].logits[row], together[i].logits[row])
            << "sequence " << i << " of " << alone.size() << ", row " << row;
      }
    }
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const EngineSetup& setup : testing::AllSetups()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ6_K}) {
      cases.push_back({setup, dtype});
    }
    for (const DType dtype : {DType::kF32, DType::kQ4_1}) {
      cases.push_back({setup, dtype, Family::kEverything});
    }
    if (setup.backend == testing::Backend::kReference) continue;
    for (const Family family : {Family::kGemma, Family::kMixtral, Family::kMistral}) {
      for (const DType dtype : {DType::kF32, DType::kQ4_1}) cases.push_back({setup, dtype, family});
    }
    cases.push_back({setup, DType::kQ2_K});
    // With columns in act-order.
    cases.push_back({setup, DType::kInt4});
    cases.push_back({setup, DType::kInt4, Family::kEverything});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllBackends, BatchInvarianceTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& tested) {
                           return absl::StrCat(testing::SetupName(tested.param.setup), "_",
                                               std::string(DTypeName(tested.param.dtype)),
                                               FamilyName(tested.param.family));
                         });

}  // namespace
}  // namespace baton::engine
