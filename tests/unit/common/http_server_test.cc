#include "common/http/server.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/support/http_client.h"

namespace baton::http {
namespace {

using ::baton::testing::HttpClient;

constexpr absl::Duration kLong = absl::Seconds(20);

std::unique_ptr<Server> StartServer(Handler handler, ServerOptions options = {}) {
  options.host = "127.0.0.1";
  auto server = Server::Start(std::move(options), std::move(handler));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

void Echo(Request request, std::shared_ptr<Response> response) {
  response->Send(200, {{"X-Path", request.path}, {"X-Q", request.query["q"]}}, request.body);
}

TEST(HttpServerTest, AnswersSeveralRequestsOnOneConnection) {
  const auto server = StartServer(Echo);
  HttpClient client(server->port());

  for (int i = 0; i < 3; ++i) {
    const auto result = client.Do("POST", "/a%20b?q=x+y", absl::StrCat("body ", i));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->status, 200);
    EXPECT_EQ(result->headers.at("x-path"), "/a b");
    EXPECT_EQ(result->headers.at("x-q"), "x y");
    EXPECT_EQ(result->body, absl::StrCat("body ", i));
  }
}

TEST(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  const auto server = StartServer(Echo);
  HttpClient client(server->port());

  ASSERT_TRUE(client.Send("POST", "/1", "first"));
  ASSERT_TRUE(client.Send("POST", "/2", "second"));

  EXPECT_EQ(client.ReadResult()->body, "first");
  EXPECT_EQ(client.ReadResult()->body, "second");
}

TEST(HttpServerTest, StreamsChunksAsTheyAreWritten) {
  std::shared_ptr<Response> held;
  absl::Notification arrived;
  const auto server = StartServer([&](Request, std::shared_ptr<Response> response) {
    held = std::move(response);
    arrived.Notify();
  });
  HttpClient client(server->port());
  ASSERT_TRUE(client.Send("GET", "/stream"));
  ASSERT_TRUE(arrived.WaitForNotificationWithTimeout(kLong));

  held->Start(200, {{"Content-Type", "text/event-stream"}});
  held->Write("data: 1\n\n");
  EXPECT_TRUE(client.ReadUntil("data: 1\n\n").ok());
  held->Write("data: 2\n\n");
  EXPECT_TRUE(client.ReadUntil("data: 2\n\n").ok());
  held->End();
  EXPECT_TRUE(client.ReadUntil("0\r\n\r\n").ok());
}

TEST(HttpServerTest, TellsTheHandlerWhenTheClientGoesAway) {
  absl::Notification gone, arrived;
  std::shared_ptr<Response> held;
  const auto server = StartServer([&](Request, std::shared_ptr<Response> response) {
    held = response;
    response->OnGone([&] { gone.Notify(); });
    arrived.Notify();
  });
  HttpClient client(server->port());
  ASSERT_TRUE(client.Send("GET", "/slow"));
  ASSERT_TRUE(arrived.WaitForNotificationWithTimeout(kLong));

  client.Close();

  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(kLong));
  EXPECT_TRUE(held->closed());
  held->Send(200, {}, "too late");  // does nothing
}

TEST(HttpServerTest, NoticesThatAClientGoesAwayAfterSendingMoreThanItsRequest) {
  absl::Notification gone, arrived;
  const auto server = StartServer([&](Request, std::shared_ptr<Response> response) {
    response->OnGone([&] { gone.Notify(); });
    arrived.Notify();
  });
  HttpClient client(server->port());
  ASSERT_TRUE(client.SendRaw("GET / HTTP/1.1\r\nHost: x\r\n\r\n\r\nGET /next HTTP/1.1\r\n"));
  ASSERT_TRUE(arrived.WaitForNotificationWithTimeout(kLong));

  client.Close();

  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(absl::Seconds(5)));
}

TEST(HttpServerTest, ARefusalReachesAClientThatIsStillSending) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  const auto server = StartServer(Echo, options);
  HttpClient client(server->port());
  const std::string body(16 << 20, 'x');  // more than the socket buffers take

  ASSERT_TRUE(client.Send("POST", "/", body)) << "reset while sending";

  const auto result = client.ReadResult();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->status, 413);
  EXPECT_TRUE(client.WaitForClose());
}

TEST(HttpServerTest, CountsWhatASlowReaderHasNotTaken) {
  absl::Notification arrived;
  std::shared_ptr<Response> held;
  const auto server = StartServer([&](Request, std::shared_ptr<Response> response) {
    held = std::move(response);
    arrived.Notify();
  });
  HttpClient client(server->port());
  ASSERT_TRUE(client.Send("GET", "/stream"));
  ASSERT_TRUE(arrived.WaitForNotificationWithTimeout(kLong));
  held->Start(200, {});
  constexpr size_t kBytes = 32u << 20;  // more than both socket buffers hold

  held->Write(std::string(kBytes, 'x'));
  EXPECT_GT(held->buffered_bytes(), 0u);
  absl::Notification drained;
  held->OnDrained([&] {
    if (!drained.HasBeenNotified()) drained.Notify();
  });
  held->End();
  const auto result = client.ReadResult();

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->body.size(), kBytes);
}

TEST(HttpServerTest, RefusesWhatIsMalformedOrTooLarge) {
  ServerOptions options;
  options.max_body_bytes = 100;
  options.max_header_bytes = 1000;
  const auto server = StartServer(Echo, options);
  {
    HttpClient client(server->port());
    ASSERT_TRUE(client.SendRaw("NOT HTTP AT ALL\r\n\r\n"));
    EXPECT_EQ(client.ReadResult()->status, 400);
    EXPECT_TRUE(client.WaitForClose());
  }
  {
    HttpClient client(server->port());
    EXPECT_EQ(client.Do("POST", "/", std::string(101, 'x'))->status, 413);
  }
  {
    HttpClient client(server->port());
    EXPECT_EQ(client.Do("GET", "/", "", "X-Big: " + std::string(2000, 'x') + "\r\n")->status, 431);
  }
  {
    HttpClient client(server->port());
    EXPECT_EQ(client.Do("GET", "/%zz")->status, 400);
  }
}

TEST(HttpServerTest, AnswersExpectContinue) {
  const auto server = StartServer(Echo);
  HttpClient client(server->port());

  ASSERT_TRUE(client.SendRaw(
      "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
  ASSERT_TRUE(client.ReadUntil("100 Continue\r\n\r\n").ok());
  ASSERT_TRUE(client.SendRaw("hi"));

  EXPECT_EQ(client.ReadResult()->body, "hi");
}

TEST(HttpServerTest, AnswersHttp10WithoutChunks) {
  const auto server = StartServer([](Request, std::shared_ptr<Response> response) {
    response->Start(200, {});
    response->Write("abc");
    response->End();
  });
  HttpClient client(server->port());

  ASSERT_TRUE(client.SendRaw("GET / HTTP/1.0\r\n\r\n"));

  const auto answer = client.ReadUntil("\r\n\r\nabc");
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(client.WaitForClose());
}

TEST(HttpServerTest, RefusesConnectionsBeyondItsBound) {
  ServerOptions options;
  options.max_connections = 1;
  const auto server = StartServer(Echo, options);
  HttpClient first(server->port());
  ASSERT_EQ(first.Do("GET", "/")->status, 200);

  HttpClient second(server->port());

  EXPECT_EQ(second.ReadResult()->status, 503);
}

TEST(HttpServerTest, NamesThePortThatIsTaken) {
  const auto server = StartServer(Echo);
  ServerOptions options;
  options.host = "127.0.0.1";
  options.port = server->port();

  const auto second = Server::Start(options, Echo);

  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(absl::StrCat(server->port())), absl::string_view::npos);
}

TEST(HttpServerTest, ServesManyClientsOnSeveralThreads) {
  ServerOptions options;
  options.num_threads = 2;
  const auto server = StartServer(Echo, options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&server, t] {
      HttpClient client(server->port());
      for (int i = 0; i < 50; ++i) {
        const auto result = client.Do("POST", "/", absl::StrCat(t, ":", i));
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_EQ(result->body, absl::StrCat(t, ":", i));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace baton::http
