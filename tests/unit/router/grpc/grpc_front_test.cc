#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "baton/v1/generate.grpc.pb.h"
#include "tests/unit/router/router_fixture.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

class GrpcFrontTest : public RouterFixture {
 protected:
  void Connect() {
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", router_->grpc_port()),
                                   grpc::InsecureChannelCredentials());
    stub_ = v1::Generation::NewStub(channel_);
  }
  struct Answer {
    grpc::Status status;
    std::string text;
    std::vector<std::int32_t> token_ids;
    std::vector<v1::GenerateResponse> messages;
  };
  Answer Generate(const v1::GenerateRequest& request, grpc::ClientContext& context) {
    Answer answer;
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      answer.text += message.text();
      answer.token_ids.insert(answer.token_ids.end(), message.token_ids().begin(),
                              message.token_ids().end());
      answer.messages.push_back(message);
    }
    answer.status = reader->Finish();
    return answer;
  }
  Answer Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    return Generate(request, context);
  }
  static v1::GenerateRequest Endless() {
    v1::GenerateRequest request;
    request.set_text("Hello");
    request.mutable_sampling()->set_ignore_eos(true);
    request.mutable_sampling()->set_max_tokens(400);
    return request;
  }

  // Sends one message to a service whose generated code Debian does not ship, and returns the first
  // message of the answer; both in protobuf's wire format.
  std::string CallRaw(const std::string& method, const std::string& request) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    auto call = stub.PrepareCall(&context, method, &queue);
    const auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    EXPECT_TRUE(wait());
    const grpc::Slice slice(request);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    EXPECT_TRUE(wait());
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    EXPECT_TRUE(wait());
    std::vector<grpc::Slice> slices;
    std::string bytes;
    if (answer.Dump(&slices).ok()) {
      for (const grpc::Slice& part : slices) bytes.append(part.begin(), part.end());
    }
    context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    return bytes;
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

TEST_F(GrpcFrontTest, StreamsTextAndTokenIds) {
  StartCluster();
  Connect();
  v1::GenerateRequest request;
  request.set_model("tiny");
  request.mutable_chat()->add_messages()->set_role("user");
  request.mutable_chat()->mutable_messages(0)->set_content("Tell me a story");
  request.set_logprobs(1);

  const Answer answer = Generate(request);

  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, kAnswer);
  EXPECT_EQ(answer.token_ids, script_);
  EXPECT_GT(answer.messages.front().prompt_token_ids_size(), 0);
  const v1::GenerateResponse& last = answer.messages.back();
  EXPECT_EQ(last.usage().completion_tokens(), script_.size());
  EXPECT_EQ(answer.messages[answer.messages.size() - 2].finish_reason(),
            v1::GenerateResponse::FINISH_REASON_STOP);
  EXPECT_EQ(answer.messages.front().logprobs(0).top_size(), 1);
}

TEST_F(GrpcFrontTest, TakesTokenIdsAndStopStrings) {
  StartCluster();
  Connect();
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(5);
  request.mutable_token_ids()->add_ids(6);
  request.mutable_sampling()->add_stop("little");
  request.mutable_sampling()->set_max_tokens(50);

  const Answer answer = Generate(request);

  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "Once upon a time there was a ");
  EXPECT_EQ(answer.messages[answer.messages.size() - 2].stop_string(), "little");
  EXPECT_EQ(answer.messages.back().usage().prompt_tokens(), 2);
}

TEST_F(GrpcFrontTest, MistakesAreInvalidArgument) {
  StartCluster();
  Connect();
  v1::GenerateRequest no_prompt;
  EXPECT_EQ(Generate(no_prompt).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::GenerateRequest hot = Endless();
  hot.mutable_sampling()->set_temperature(9);

  const Answer answer = Generate(hot);

  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("temperature"));
  v1::GenerateRequest other = Endless();
  other.set_model("gpt-4");
  EXPECT_EQ(Generate(other).status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcFrontTest, WithoutWorkersCallsAreUnavailable) {
  StartRouter();
  Connect();

  EXPECT_EQ(Generate(Endless()).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GrpcFrontTest, TheHealthServiceFollowsReadiness) {
  const std::string check = "/grpc.health.v1.Health/Check";
  const std::string serving("\x08\x01", 2), not_serving("\x08\x02", 2);  // status = ...
  StartRouter();
  Connect();
  EXPECT_EQ(CallRaw(check, ""), not_serving);

  prefill_ = StartWorker("p0", WorkerRole::kPrefill);
  decode_ = StartWorker("d0", WorkerRole::kDecode);

  ASSERT_TRUE(WaitFor([&] { return CallRaw(check, "") == serving; }));
  EXPECT_EQ(CallRaw(check,
                    "\x0a\x13"
                    "baton.v1.Generation"),
            serving);
}

TEST_F(GrpcFrontTest, ReflectionListsTheService) {
  StartRouter();
  Connect();

  // ServerReflectionRequest{list_services: "*"}
  const std::string answer =
      CallRaw("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3a\x01*");

  EXPECT_THAT(answer, HasSubstr("baton.v1.Generation"));
  EXPECT_THAT(answer, HasSubstr("grpc.health.v1.Health"));
}

TEST_F(GrpcFrontTest, KeysAreChecked) {
  config_.api_key = {"secret"};
  StartCluster();
  Connect();
  EXPECT_EQ(Generate(Endless()).status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer secret");
  context.AddMetadata("x-request-id", "mine");

  const Answer answer = Generate(Endless(), context);

  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.messages.at(0).request_id(), "mine");
}

TEST_F(GrpcFrontTest, ACancelledCallFreesTheWorkers) {
  StartCluster();
  Connect();
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Endless());
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));

  context.TryCancel();

  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(WaitForNothingHeld());
}

TEST_F(GrpcFrontTest, ADeadlineEndsTheCallAndItsWork) {
  StartCluster();
  Connect();
  prefill_->SetPaused(true);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(300)));

  EXPECT_EQ(Generate(Endless(), context).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);

  EXPECT_TRUE(WaitForNothingHeld());
}

TEST_F(GrpcFrontTest, ALostWorkerIsAnErrorStatus) {
  StartCluster();
  Connect();
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Endless());
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));

  decode_.reset();

  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace baton::router
