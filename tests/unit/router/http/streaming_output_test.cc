#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "router/http/http_outputs.h"
#include "tests/support/test_paths.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// A response whose client reads only when the test says so. Thread-safe.
class FakeResponse final : public http::Response {
 public:
  void Send(int status, const http::Headers&, std::string body) override {
    absl::MutexLock lock(&mutex_);
    status_ = status;
    text_ += body;
    closed_ = true;
  }
  void Start(int status, const http::Headers&) override {
    absl::MutexLock lock(&mutex_);
    status_ = status;
  }
  void Write(std::string chunk) override {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    text_ += chunk;
    unread_ += chunk.size();
    ++num_writes_;
  }
  void End() override {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  std::size_t buffered_bytes() const override {
    absl::MutexLock lock(&mutex_);
    return unread_;
  }
  bool closed() const override {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }
  void OnGone(std::function<void()>) override {}
  void OnDrained(std::function<void()> callback) override { on_drained_ = std::move(callback); }

  void ReadAll() {
    {
      absl::MutexLock lock(&mutex_);
      if (unread_ == 0) return;
      unread_ = 0;
    }
    on_drained_();
  }
  std::string text() const {
    absl::MutexLock lock(&mutex_);
    return text_;
  }
  int status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }
  int num_writes() const {
    absl::MutexLock lock(&mutex_);
    return num_writes_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  std::size_t unread_ ABSL_GUARDED_BY(mutex_) = 0;
  int status_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_writes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_drained_;
};

class StreamingOutputTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto model = ServedModel::Load({baton::testing::ModelsDir() + "/tiny/target", {}, 0, ""});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  StreamingOutputTest() {
    PreparedRequest request;
    request.prompts.push_back({{1, 2}, ""});
    request.max_tokens.push_back(1000);
    auto shared = std::make_shared<const PreparedRequest>(std::move(request));
    AnswerContext context;
    context.request = shared.get();
    context.model = model_.get();
    output_ = std::make_shared<StreamingOutput>(
        AnswerParts{response_, "r", shared, MakeChatFormat(context)}, /*max_unread_bytes=*/100000);
    output_->ListenForDrains();
  }
  static ChoiceDelta Delta(std::string text, bool first = false) {
    ChoiceDelta delta;
    delta.first = first;
    delta.text = std::move(text);
    return delta;
  }
  // All content that the stream carries.
  std::string Content() const {
    std::string content;
    const std::string text = response_->text();
    for (std::size_t at = text.find("data: {"); at != std::string::npos;
         at = text.find("data: {", at + 1)) {
      const Json event = Json::parse(text.substr(at + 6, text.find("\n\n", at) - at - 6));
      if (!event.contains("choices")) continue;
      for (const Json& choice : event["choices"]) {
        if (choice["delta"].contains("content")) content += choice["delta"]["content"];
      }
    }
    return content;
  }

  static std::unique_ptr<const ServedModel> model_;
  std::shared_ptr<FakeResponse> response_ = std::make_shared<FakeResponse>();
  std::shared_ptr<StreamingOutput> output_;
};
std::unique_ptr<const ServedModel> StreamingOutputTest::model_;

TEST_F(StreamingOutputTest, MergesWhatComesWhileTheClientHasNotRead) {
  output_->OnDelta(Delta("a", true));
  output_->OnDelta(Delta("b"));
  output_->OnDelta(Delta("c"));
  EXPECT_EQ(response_->num_writes(), 1);
  EXPECT_EQ(Content(), "a");

  response_->ReadAll();

  EXPECT_EQ(response_->num_writes(), 2);
  EXPECT_THAT(response_->text(), HasSubstr("\"content\":\"bc\""));
  response_->ReadAll();
  EXPECT_EQ(response_->num_writes(), 2);
}

TEST_F(StreamingOutputTest, TheEndWritesWhatIsPending) {
  output_->OnDelta(Delta("a", true));
  output_->OnDelta(Delta("b"));

  output_->OnDone({2, 2});

  EXPECT_EQ(Content(), "ab");
  EXPECT_THAT(response_->text(), ::testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(response_->closed());
}

TEST_F(StreamingOutputTest, AnErrorBeforeTheFirstTokenHasItsOwnStatus) {
  output_->OnFailed(absl::UnavailableError("no worker"));

  EXPECT_EQ(response_->status(), 503);
  EXPECT_FALSE(output_->OnDelta(Delta("a", true)));
}

TEST_F(StreamingOutputTest, ALaterErrorIsAnEventAfterTheTextSoFar) {
  output_->OnDelta(Delta("a", true));
  output_->OnDelta(Delta("b"));

  output_->OnFailed(absl::UnavailableError("worker lost"));

  EXPECT_EQ(response_->status(), 200);
  EXPECT_EQ(Content(), "ab");
  EXPECT_THAT(response_->text(), HasSubstr("data: {\"error\":{\"message\":\"worker lost\""));
  EXPECT_THAT(response_->text(), Not(HasSubstr("[DONE]")));
  EXPECT_TRUE(response_->closed());
}

TEST_F(StreamingOutputTest, AClientThatReadsTooSlowlyIsCutOff) {
  bool wants_more = true;
  int num_deltas = 0;
  while (wants_more && num_deltas < 20000) {
    wants_more = output_->OnDelta(Delta("some text", num_deltas == 0));
    ++num_deltas;
  }

  EXPECT_FALSE(wants_more);
  EXPECT_GT(num_deltas, 100);
  EXPECT_THAT(response_->text(), HasSubstr("reads too slowly"));
  EXPECT_TRUE(response_->closed());
}

// For the thread sanitizer too: drains come on another thread than deltas.
TEST_F(StreamingOutputTest, NothingIsLostBetweenWritesAndDrains) {
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done.load()) response_->ReadAll();
  });
  std::string expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = std::to_string(i) + " ";
    expected += text;
    EXPECT_TRUE(output_->OnDelta(Delta(text, i == 0)));
  }
  done.store(true);
  reader.join();

  output_->OnDone({2, 3000});

  EXPECT_EQ(Content(), expected);
}

}  // namespace
}  // namespace baton::router
