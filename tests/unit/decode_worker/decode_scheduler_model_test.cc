// The scheduler over a real model: whatever cuts, mixes and interrupts a sequence's computation,
// its tokens and log-probabilities stay the same, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decode_worker/decode_scheduler.h"
#include "tests/support/engine_setups.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_step_model.h"
#include "tests/support/fake_transfer_receiver.h"
#include "tests/support/golden_engine.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/recording_outbox.h"
#include "tests/support/test_paths.h"
#include "tests/unit/decode_worker/counting_observer.h"

namespace baton::decode_worker {
namespace {

using baton::testing::EngineSetup;
using baton::testing::GoldenEngine;

constexpr int kBlockSize = 4;
constexpr worker::SessionKey kRouter{0, 1};

class EngineRunner final : public worker::StepRunner {
 public:
  explicit EngineRunner(GoldenEngine& engine) : engine_(engine) {}
  absl::Status Step(std::span<const engine::SequenceStep> sequences,
                    const engine::StepHooks& hooks) override {
    return engine_.runner().Step(sequences, engine_.kv(), hooks);
  }

 private:
  GoldenEngine& engine_;
};

// Output of each request by id, and what happened on the way.
struct Served {
  std::map<std::string, std::vector<SampledToken>> outputs;
  int preemptions = 0;
};

// A decode scheduler over a real model and, for handoffs, a prefill worker's pool beside it.
class ServingTest : public ::testing::Test {
 protected:
  template <class Model>
  void Load(const Model& model, EngineSetup setup) {
    setup.block_size = kBlockSize;
    setup.kv_tokens = 1024;
    setup.max_rows = 64;
    for (auto* engine : {&engine_, &prefill_engine_}) {
      auto created = GoldenEngine::Create(model, setup);
      ASSERT_TRUE(created.ok()) << created.status();
      *engine = *std::move(created);
    }
    const engine::ModelPlan& plan = engine_->runner().plan();
    fingerprint_.num_layers = static_cast<int>(plan.layers.size());
    for (const auto& layer : plan.layers) fingerprint_.windows.push_back(layer.window);
  }

  // Greedy and seeded requests with prompts of random tokens.
  std::vector<session::RequestSpec> Requests(int count) const {
    std::mt19937 random(7);
    std::vector<session::RequestSpec> specs(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      session::RequestSpec& spec = specs[static_cast<std::size_t>(i)];
      spec.request_id = absl::StrCat("r", i);
      const unsigned vocab = static_cast<unsigned>(engine_->runner().plan().vocab_size);
      for (int size = 5 + static_cast<int>(random() % 30); size > 0; --size) {
        spec.prompt.push_back(static_cast<std::int32_t>(5 + random() % (vocab - 5)));
      }
      spec.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
      spec.sampling.seed = random();
      spec.sampling.max_tokens = 20;
      spec.sampling.logprobs = true;
      spec.sampling.top_logprobs = 2;
    }
    return specs;
  }

  Served Serve(const std::vector<session::RequestSpec>& specs, int num_blocks, int max_rows,
               bool local = true) {
    DecodeLimits limits;
    limits.block_size = kBlockSize;
    limits.num_blocks = num_blocks;
    limits.vocab_size = engine_->runner().plan().vocab_size;
    limits.max_context = engine_->runner().plan().max_context;
    limits.max_num_batched_tokens = max_rows;
    limits.window = fingerprint_.WidestWindow();
    SpoilBlocks();
    engine::BlockAllocator allocator(num_blocks);
    EngineRunner runner(*engine_);
    FakeClock clock;
    FakeTransferReceiver receiver;
    RecordingOutbox outbox;
    CountingObserver observer;
    DecodeScheduler scheduler(limits, {&clock, &allocator, &outbox, &observer, &receiver});
    Served served;
    for (const session::RequestSpec& spec : specs) {
      scheduler.Handle(worker::RouterEvent{kRouter, session::Reserve{spec, local}, clock.Now()});
      if (!local) served.outputs[spec.request_id] = {HandOver(spec, outbox, receiver, scheduler)};
    }
    while (RunOneStep(scheduler, runner)) {
      const absl::Status books = scheduler.CheckBooks();
      EXPECT_TRUE(books.ok()) << books;
    }
    EXPECT_TRUE(scheduler.idle());
    for (const session::RequestSpec& spec : specs) {
      for (const session::TokenOutput& output : outbox.OutputsOf(spec.request_id)) {
        EXPECT_EQ(output.first_position, served.outputs[spec.request_id].size());
        for (const SampledToken& token : output.tokens) {
          served.outputs[spec.request_id].push_back(token);
        }
      }
    }
    served.preemptions = observer.preemptions;
    return served;
  }

  // Whatever is read before it was written shows: all bits set are NaN in each type.
  void SpoilBlocks() {
    for (int layer = 0; layer < fingerprint_.num_layers; ++layer) {
      for (int block = 0; block < engine_->kv().num_blocks(); ++block) {
        std::ranges::fill(engine_->kv().Block(layer, block), std::byte{0xff});
      }
    }
  }

  // Does a prefill worker's part: computes the prompt in its own pool, in chunks of another size
  // than any here, and moves what has to move into the granted blocks. Returns the first token.
  SampledToken HandOver(const session::RequestSpec& spec, const RecordingOutbox& outbox,
                        FakeTransferReceiver& receiver, DecodeScheduler& scheduler) {
    const auto granted = outbox.Of<session::TicketGranted>(spec.request_id);
    EXPECT_EQ(granted.size(), 1u);
    const TransferTicket& ticket = granted.at(0).ticket;
    worker::ReceiveDone done;
    done.transfer_id = ticket.transfer_id;
    const int size = static_cast<int>(spec.prompt.size());
    const auto blocks =
        prefill_engine_->allocator().Allocate(prefill_engine_->kv().layout().BlocksFor(size));
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    for (int begin = 0; begin < size; begin += 11) {
      engine::SequenceStep step;
      step.tokens = std::span(spec.prompt)
                        .subspan(static_cast<std::size_t>(begin),
                                 static_cast<std::size_t>(std::min(11, size - begin)));
      step.start_position = begin;
      step.block_table = blocks->ids();
      step.prompt_length = size;
      step.sampling = &spec.sampling;
      step.prompt = spec.prompt;
      const absl::Status status = prefill_engine_->runner().Step(
          {&step, 1}, prefill_engine_->kv(), {.on_token = [&](int, SampledToken token) {
            done.record.first_token = std::move(token);
          }});
      EXPECT_TRUE(status.ok()) << status;
    }
    for (int layer = 0; layer < fingerprint_.num_layers; ++layer) {
      for (int i = fingerprint_.FirstVisibleToken(layer, size) / kBlockSize; i < blocks->size();
           ++i) {
        std::ranges::copy(prefill_engine_->kv().Block(layer, blocks->ids()[i]),
                          engine_->kv().Block(layer, ticket.blocks.at(i)).begin());
      }
    }
    EXPECT_TRUE(receiver.Close(ticket.transfer_id));
    scheduler.Handle(done);
    return done.record.first_token;
  }

  static void ExpectSame(const std::vector<SampledToken>& a, const std::vector<SampledToken>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].token, b[i].token) << "position " << i;
      EXPECT_EQ(a[i].logprob, b[i].logprob) << "position " << i;
    }
  }

  // What each request gives alone, in a roomy pool, with whole prompts.
  Served ServeAlone(const std::vector<session::RequestSpec>& specs) {
    Served all;
    for (const session::RequestSpec& spec : specs) {
      Served one = Serve({spec}, /*num_blocks=*/64, /*max_rows=*/64);
      EXPECT_EQ(one.preemptions, 0);
      all.outputs.merge(one.outputs);
    }
    return all;
  }

  std::unique_ptr<GoldenEngine> engine_, prefill_engine_;
  ModelFingerprint fingerprint_;  // as far as transfers look at it
};

class DecodeSchedulerModelTest : public ServingTest,
                                 public ::testing::WithParamInterface<EngineSetup> {
 protected:
  void SetUp() override { Load(baton::testing::ModelsDir() + "/tiny/target", GetParam()); }
};

TEST_P(DecodeSchedulerModelTest, GivesTheSameTokensWithAnyChunkSizeAndCompany) {
  const std::vector<session::RequestSpec> specs = Requests(4);
  const Served alone = ServeAlone(specs);

  for (const int max_rows : {5, 16, 64}) {
    SCOPED_TRACE(absl::StrCat("max rows ", max_rows));
    const Served run = Serve(specs, /*num_blocks=*/128, max_rows);

    EXPECT_EQ(run.preemptions, 0);
    for (const auto& [id, output] : alone.outputs) {
      SCOPED_TRACE(id);
      ExpectSame(run.outputs.at(id), output);
    }
  }
}

TEST_P(DecodeSchedulerModelTest, GivesTheSameTokensAfterPreemptions) {
  const std::vector<session::RequestSpec> specs = Requests(4);
  const Served alone = ServeAlone(specs);

  const Served run = Serve(specs, /*num_blocks=*/22, /*max_rows=*/9);

  EXPECT_GT(run.preemptions, 0);
  for (const auto& [id, output] : alone.outputs) {
    SCOPED_TRACE(id);
    ExpectSame(run.outputs.at(id), output);
  }
}

TEST_P(DecodeSchedulerModelTest, GivesTheSameTokensAfterAHandoff) {
  const std::vector<session::RequestSpec> specs = Requests(4);
  const Served alone = ServeAlone(specs);

  int tight = 2;  // holds every prompt with its first token, but no whole output of all
  for (const auto& spec : specs) tight += static_cast<int>(spec.prompt.size()) / kBlockSize + 1;

  for (const int num_blocks : {128, tight}) {
    SCOPED_TRACE(absl::StrCat("blocks ", num_blocks));
    const Served run = Serve(specs, num_blocks, /*max_rows=*/16, /*local=*/false);

    EXPECT_EQ(run.preemptions > 0, num_blocks == tight);
    for (const auto& [id, output] : alone.outputs) {
      SCOPED_TRACE(id);
      ExpectSame(run.outputs.at(id), output);
    }
  }
}

// The reference backend has the same promise and its own tests; here it would only be slow.
std::vector<EngineSetup> CpuSetups() {
  std::vector<EngineSetup> setups = baton::testing::AllSetups();
  std::erase_if(setups, [](const EngineSetup& setup) {
    return setup.backend == baton::testing::Backend::kReference;
  });
  return setups;
}

// Models whose KV depends on more than the tokens before, or of which only a part is kept.
enum class Kind : std::uint8_t { kDynamicRope, kLongRope, kAllWindowed, kMixedWindows };

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kDynamicRope:
      return "DynamicRope";
    case Kind::kLongRope:
      return "LongRope";
    case Kind::kAllWindowed:
      return "AllWindowed";
    case Kind::kMixedWindows:
      break;
  }
  return "MixedWindows";
}

// Texts of the tests have 5 to 54 tokens: some of them, and some prompts, are long for the ropes.
checkpoint::ModelMetadata MetadataOf(Kind kind) {
  checkpoint::ModelMetadata metadata = baton::testing::TinyMetadata();
  metadata.rope.original_max_position = 24;
  metadata.rope.factor = 4.0f;
  const std::size_t pairs = static_cast<std::size_t>(metadata.rope.dim / 2);
  switch (kind) {
    case Kind::kDynamicRope:
      metadata.rope.scaling = checkpoint::RopeScaling::kDynamic;
      break;
    case Kind::kLongRope:
      metadata.rope.scaling = checkpoint::RopeScaling::kLongRope;
      metadata.rope.short_factors.assign(pairs, 1.0f);
      metadata.rope.long_factors.assign(pairs, 2.5f);
      break;
    case Kind::kAllWindowed:
    case Kind::kMixedWindows:
      metadata.sliding_window = 10;
      metadata.windowed_layers = {true, kind == Kind::kAllWindowed};
      break;
  }
  return metadata;
}

class SpecialModelTest : public ServingTest,
                         public ::testing::WithParamInterface<std::tuple<Kind, EngineSetup>> {
 protected:
  void SetUp() override {
    const auto& [kind, setup] = GetParam();
    Load(baton::testing::MakeRandomCheckpoint(MetadataOf(kind), checkpoint::DType::kF32, 3), setup);
  }
  // Where all layers are windowed, outputs do not add to what a sequence holds.
  bool Grows() const { return fingerprint_.WidestWindow() == 0; }
  void ExpectSameAsAlone(const std::vector<session::RequestSpec>& specs, const Served& run) {
    const Served alone = ServeAlone(specs);
    for (const auto& [id, output] : alone.outputs) {
      SCOPED_TRACE(id);
      ExpectSame(run.outputs.at(id), output);
    }
  }
};

TEST_P(SpecialModelTest, GivesTheSameTokensInChunksAndAfterPreemptions) {
  const std::vector<session::RequestSpec> specs = Requests(5);

  const Served run = Serve(specs, /*num_blocks=*/15, /*max_rows=*/9);

  EXPECT_EQ(run.preemptions > 0, Grows());
  ExpectSameAsAlone(specs, run);
}

TEST_P(SpecialModelTest, GivesTheSameTokensAfterAHandoff) {
  const std::vector<session::RequestSpec> specs = Requests(5);
  int tight = 2;  // holds every prompt with its first token
  for (const auto& spec : specs) tight += static_cast<int>(spec.prompt.size()) / kBlockSize + 1;

  for (const int num_blocks : {128, tight}) {
    SCOPED_TRACE(absl::StrCat("blocks ", num_blocks));
    const Served run = Serve(specs, num_blocks, /*max_rows=*/16, /*local=*/false);

    EXPECT_EQ(run.preemptions > 0, num_blocks == tight && Grows());
    ExpectSameAsAlone(specs, run);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SpecialModelTest,
                         ::testing::Combine(::testing::Values(Kind::kDynamicRope, Kind::kLongRope,
                                                              Kind::kAllWindowed,
                                                              Kind::kMixedWindows),
                                            ::testing::ValuesIn(baton::testing::AllSetups())),
                         [](const auto& tested) {
                           return absl::StrCat(KindName(std::get<0>(tested.param)),
                                               SetupName(std::get<1>(tested.param)));
                         });

INSTANTIATE_TEST_SUITE_P(Setups, DecodeSchedulerModelTest, ::testing::ValuesIn(CpuSetups()),
                         [](const auto& setup) { return SetupName(setup.param); });

}  // namespace
}  // namespace baton::decode_worker
