#include "engine/ops/cuda/kernels/sample.h"

#include <cstdlib>

#include "engine/sampling/sampler.h"
#include "tests/support/cuda_test.h"
#include "tests/support/kernel_values.h"

namespace baton::engine::cuda {
namespace {

// A sequence whose next token is to be sampled.
struct SampleCase {
  SamplingParams params;
  std::vector<std::int32_t> prompt, output;
  std::vector<float> logits;
};

template <class T>
T OneOf(std::initializer_list<T> values, std::mt19937& random) {
  return values.begin()[random() % values.size()];
}

std::vector<float> RandomLogits(int vocab, std::mt19937& random) {
  std::vector<float> logits =
      testing::NormalFloats(vocab, random, OneOf({0.01f, 0.5f, 2.0f, 2.0f, 2.0f, 8.0f}, random));
  const unsigned kind = random() % 10;
  for (float& logit : logits) {
    if (kind < 3) logit = testing::FloatOf(testing::RoundTo<__nv_bfloat16>(logit));  // many equal
    if (kind == 3) logit = static_cast<float>(random() % 3);
    if (kind == 4) logit = 1.0f;
    if (kind == 5 && random() % 4 == 0) {
      logit = OneOf({NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 3.4e38f, -3.4e38f}, random);
    }
    if (kind == 6 && random() % 2 == 0) logit = -INFINITY;
  }
  return logits;
}

std::vector<std::int32_t> RandomTokens(int vocab, std::mt19937& random) {
  std::vector<std::int32_t> tokens(random() % 60);
  for (std::int32_t& token : tokens) {
    token = static_cast<std::int32_t>(random() % (vocab + vocab / 8 + 1)) - vocab / 16;
  }
  return tokens;
}

SampleCase RandomCase(int vocab, std::mt19937& random) {
  SampleCase c;
  SamplingParams& params = c.params;
  params.temperature = OneOf({0.0f, 0.2f, 0.7f, 1.0f, 1.0f, 1.7f, 30.0f}, random);
  params.top_k = OneOf({0, 0, 0, 1, 2, 20, 50, 300, 1024, 1500, 1 << 30}, random);
  params.top_p = OneOf({1.0f, 1.0f, 0.95f, 0.9f, 0.5f, 0.999f, 0.01f, 0.0f}, random);
  params.min_p = OneOf({0.0f, 0.0f, 0.0f, 0.05f, 0.5f, 1.0f}, random);
  if (random() % 2 == 0) {
    params.repetition_penalty = OneOf({1.0f, 1.3f, 0.8f}, random);
    params.presence_penalty = OneOf({0.0f, 0.7f, -0.4f}, random);
    params.frequency_penalty = OneOf({0.0f, 0.3f, -0.2f}, random);
  }
  params.seed = std::uint64_t{random()} << 32 | random();
  params.min_tokens = OneOf({0, 0, 20, 60}, random);
  params.stop_token_ids = RandomTokens(vocab, random);
  c.prompt = RandomTokens(vocab, random);
  c.output = RandomTokens(vocab, random);
  c.logits = RandomLogits(vocab, random);
  return c;
}

class SampleTest : public testing::CudaTest {
 protected:
  // What a step gives the device: rows, and the array their lists lie in.
  struct Packed {
    std::vector<SampleRow> rows;
    std::vector<std::int32_t> lists;
    std::vector<float> logits;
  };
  static Packed Pack(const std::vector<SampleCase>& cases) {
    Packed packed;
    const auto add = [&](const std::vector<std::int32_t>& tokens, std::int32_t& begin,
                         std::int32_t& count) {
      begin = static_cast<std::int32_t>(packed.lists.size());
      count = static_cast<std::int32_t>(tokens.size());
      packed.lists.insert(packed.lists.end(), tokens.begin(), tokens.end());
    };
    for (const SampleCase& c : cases) {
      SampleRow row{};
      row.temperature = c.params.temperature;
      row.top_p = c.params.top_p;
      row.min_p = c.params.min_p;
      row.repetition_penalty = c.params.repetition_penalty;
      row.presence_penalty = c.params.presence_penalty;
      row.frequency_penalty = c.params.frequency_penalty;
      row.top_k = c.params.top_k;
      add(c.prompt, row.prompt_begin, row.num_prompt);
      add(c.output, row.output_begin, row.num_output);
      const bool is_short = static_cast<int>(c.output.size()) < c.params.min_tokens;
      add(is_short ? c.params.stop_token_ids : std::vector<std::int32_t>(), row.masked_begin,
          row.num_masked);
      row.seed = c.params.seed;
      row.position = c.output.size();
      packed.rows.push_back(row);
      packed.logits.insert(packed.logits.end(), c.logits.begin(), c.logits.end());
    }
    return packed;
  }

  std::vector<std::int32_t> OnDeviceTokens(const Packed& packed, int vocab) {
    const int num_rows = static_cast<int>(packed.rows.size());
    const auto rows = ToDevice(packed.rows);
    const auto lists = ToDevice(packed.lists);
    const auto logits = ToDevice(packed.logits);
    const auto tokens = OnDevice(num_rows * sizeof(std::int32_t));
    const std::size_t counts = SampleWorkspaceBytes(num_rows, vocab) / sizeof(int);
    const auto workspace = ToDevice(std::vector<int>(counts, 0));
    testing::ExpectCuda(SampleTokens(logits.as<float>(), num_rows, vocab, rows.as<SampleRow>(),
                                     lists.as<std::int32_t>(), workspace.data(),
                                     tokens.as<std::int32_t>(), stream()));
    EXPECT_EQ(ToHost<int>(workspace, counts), std::vector<int>(counts, 0));
    return ToHost<std::int32_t>(tokens, num_rows);
  }

  // Every token equals the host sampler's: the chance of a draw within rounding of a boundary,
  // where they may differ, is below 1e-9 each, and the cases are the same in every run.
  void ExpectSamplersTokens(int vocab, int num_cases, std::mt19937& random) {
    if (std::getenv("BATON_SMALL_SHAPES") != nullptr) num_cases = (num_cases + 9) / 10;
    std::vector<SampleCase> cases;
    for (int i = 0; i < num_cases; ++i) cases.push_back(RandomCase(vocab, random));
    const auto got = OnDeviceTokens(Pack(cases), vocab);
    Sampler sampler;
    for (int i = 0; i < num_cases; ++i) {
      SampleCase& c = cases[i];
      const SampledToken want = sampler.Sample(c.params, c.prompt, c.output, c.logits);
      EXPECT_EQ(got[i], want.token)
          << "case " << i << " of vocabulary " << vocab << ": temperature " << c.params.temperature
          << ", top_k " << c.params.top_k << ", top_p " << c.params.top_p << ", min_p "
          << c.params.min_p;
    }
  }
};

TEST_F(SampleTest, ChoosesTheHostSamplersTokenOfSmallVocabularies) {
  std::mt19937 random(20);
  for (const int vocab : {1, 2, 15, 16, 17, 100, 257, 512, 1000}) {
    ExpectSamplersTokens(vocab, 250, random);
  }
  for (const int vocab : {1024, 1025, 2048}) ExpectSamplersTokens(vocab, 120, random);
}

TEST_F(SampleTest, ChoosesTheHostSamplersTokenOfLargeVocabularies) {
  std::mt19937 random(21);
  ExpectSamplersTokens(2049, 60, random);
  ExpectSamplersTokens(6000, 60, random);
  ExpectSamplersTokens(32001, 20, random);
}

TEST_F(SampleTest, ChoosesTheHostSamplersTokenOfTheLargestVocabulary) {
  std::mt19937 random(22);
  ExpectSamplersTokens(262144, 4, random);
}

TEST_F(SampleTest, ChoosesTheSameTokenInEverySchedule) {
  std::mt19937 random(23);
  for (const auto& [vocab, num_cases] : {std::pair{700, 24}, {2500, 8}}) {
    std::vector<SampleCase> cases;
    for (int i = 0; i < num_cases; ++i) cases.push_back(RandomCase(vocab, random));
    const Packed packed = Pack(cases);
    const auto first = OnDeviceTokens(packed, vocab);
    testing::UnderSeveralSchedules([&] { EXPECT_EQ(OnDeviceTokens(packed, vocab), first); });
  }
}

TEST_F(SampleTest, SkipsFillingRowsAndTakesTheLowestIdWhereNothingIsLeft) {
  constexpr int kVocab = 40;
  SampleCase nothing;
  nothing.logits.assign(kVocab, NAN);
  SampleCase masked;
  masked.params.min_tokens = 1;
  masked.params.temperature = 0.0f;
  masked.params.stop_token_ids = {0, 1, 2, -5, 40, 1};
  masked.logits.assign(kVocab, 1.0f);
  Packed packed = Pack({nothing, nothing, masked});
  packed.rows[0].skip = 1;

  EXPECT_EQ(OnDeviceTokens(packed, kVocab), (std::vector<std::int32_t>{-1, 0, 3}));
}

TEST_F(SampleTest, RefusesVocabulariesItHasNoRoomFor) {
  float* logits = nullptr;
  const SampleRow* rows = nullptr;
  std::int32_t* tokens = nullptr;
  for (const int vocab : {0, 524289}) {
    EXPECT_EQ(SampleTokens(logits, 1, vocab, rows, nullptr, nullptr, tokens, stream()),
              cudaErrorInvalidValue);
  }
  EXPECT_EQ(SampleTokens(logits, 0, 8, rows, nullptr, nullptr, tokens, stream()), cudaSuccess);
}

}  // namespace
}  // namespace baton::engine::cuda
