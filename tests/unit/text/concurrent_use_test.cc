#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/fake_clock.h"
#include "tests/unit/text/support.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

// One tokenizer and one template serve all threads of the router; run under TSan.
TEST(ConcurrentUseTest, ThreadsShareATokenizerAndATemplate) {
  const Tokenizer& tokenizer = testing::TinyTokenizer();
  auto compiled = ChatTemplate::Compile(*testing::TinyAssets().chat_template,
                                        testing::TinyAssets().special_tokens);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ChatTemplateInput input;
  input.messages = *jinja::ParseJson(R"([{"role": "user", "content": "What is a lighthouse?"}])");
  const FakeClock clock;
  const auto prompt_ids = [&] {
    const auto prompt = (*compiled)->Render(input, clock);
    return prompt.ok() ? tokenizer.Encode(*prompt) : std::vector<std::int32_t>();
  };
  const std::vector<std::int32_t> expected = prompt_ids();
  ASSERT_FALSE(expected.empty());

  std::vector<int> num_wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& wrong : num_wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += prompt_ids() != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(num_wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace baton::text
