// The executable as an operator meets it: start, stop, wrong input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/completions.h"
#include "tests/support/temp_directory.h"

namespace baton::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

struct Ran {
  int code = -1;
  std::string output;  // both streams
};

Ran RunBaton(const std::string& arguments) {
  const char* const binary = std::getenv("BATON_BINARY");
  const std::string command =
      absl::StrCat(binary == nullptr ? BATON_BINARY : binary, " ", arguments, " 2>&1");
  FILE* const pipe = popen(command.c_str(), "r");
  Ran ran;
  char chunk[4096];
  for (size_t got; (got = fread(chunk, 1, sizeof(chunk), pipe)) > 0;) ran.output.append(chunk, got);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

TEST(ServeTest, ExplainsWrongUsage) {
  const std::pair<std::string, std::string> cases[] = {
      {"serve --prefil 2", "did you mean prefill?"},
      {"serve --block-size=1000", "is not in 1..256"},
      {"inspect /nowhere", "/nowhere"},
      {"frobnicate", "unknown command frobnicate"},
      {"bench --num-prompts=0", "num-prompts"},
  };
  for (const auto& [arguments, message] : cases) {
    const Ran ran = RunBaton(arguments);
    EXPECT_NE(ran.code, 0) << arguments;
    EXPECT_THAT(ran.output, HasSubstr(message)) << arguments;
  }
}

TEST(ServeTest, GivesUpOnAModelThatCannotBeLoaded) {
  const Ran ran = RunBaton("serve --model=/dev/null --port=0 --grpc-port=0");

  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("/dev/null"));
}

// A worker that refuses what the router takes ends the cluster as well; each says why, once.
TEST(ServeTest, SaysOnceWhyItCannotStart) {
  for (const std::string& wrong : {std::string("--model=/dev/null"),
                                   absl::StrCat("--model=", TinyModelPath(), " --kv-memory=5")}) {
    const Ran ran = RunBaton(absl::StrCat("serve --prefill=1 --port=0 --grpc-port=0 ", wrong));

    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("cannot start"));
    EXPECT_THAT(ran.output, Not(HasSubstr("restarting"))) << ran.output;
  }
}

TEST(ServeTest, RendersNoEndlessRequest) {
  const Ran ran = RunBaton(absl::StrCat("inspect ", TinyModelPath(), " --render /dev/zero"));

  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("/dev/zero: more than 67108864 bytes"));
}

TEST(ServeTest, RendersARequestFromAPipe) {
  const TempDirectory directory;
  const std::string chat_template =
      directory.Write("chat.jinja", "{% for m in messages %}<{{ m.content }}>{% endfor %}");
  const std::string pipe = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << R"([{"role": "user", "content": "hello"}])"; });

  const Ran ran = RunBaton(absl::StrCat("inspect ", TinyModelPath(),
                                        " --chat-template=", chat_template, " --render ", pipe));
  writer.join();

  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(ran.output, "<hello>\n");
}

TEST(ServeTest, NamesThePlaceOfAMistakeInTheChatTemplate) {
  const TempDirectory directory;
  const std::string path = directory.Write("chat.jinja", "{{ messages }}\n{{ x | nope }}");

  const Ran ran = RunBaton(absl::StrCat("serve --model=", TinyModelPath(),
                                        " --port=0 --grpc-port=0 --chat-template=", path));

  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr(path + ": line 2, column 8: "));
}

TEST(ServeTest, InspectsTheTinyModel) {
  const Ran ran = RunBaton("inspect " + TinyModelPath());

  EXPECT_EQ(ran.code, 0);
  for (const char* fact :
       {"llama (huggingface)", "5.0 M", "8 query heads, 4 KV heads",
        "layers 0-4: 8/4 heads of 32, full attention", "BF16       47 tensors",
        "tokenizer.json: BPE, pre_tokenizer ByteLevel", "eos_token \"<|end|>\"", "chat template"}) {
    EXPECT_THAT(ran.output, HasSubstr(fact));
  }
}

TEST(ServeTest, InspectsLayersThatDiffer) {
  const Ran ran = RunBaton("inspect " BATON_SOURCE_DIR "/tests/golden/arch/gemma2");

  EXPECT_EQ(ran.code, 0);
  for (const char* fact : {"layers 0, 2: 4/2 heads of 32, window 16, scores capped at 8",
                           "layers 1: 4/2 heads of 32, full attention", "only token ids"}) {
    EXPECT_THAT(ran.output, HasSubstr(fact));
  }
}

TEST(ServeTest, ShowsTokensAndThePromptOfAChat) {
  const TempDirectory directory;
  const std::string chat = directory.Write(
      "chat.json", R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3})");

  const Ran tokens = RunBaton("inspect " + TinyModelPath() + " --tokenize 'Hello there'");
  const Ran prompt = RunBaton("inspect " + TinyModelPath() + " --render " + chat);

  EXPECT_EQ(tokens.code, 0);
  EXPECT_EQ(tokens.output,
            "    1649  \"Hello\"\n     753  \" there\"\n2 tokens, decoded: \"Hello there\"\n");
  EXPECT_EQ(prompt.code, 0);
  EXPECT_EQ(prompt.output, "<|user|>\nhi<|end|>\n<|assistant|>\n");
}

TEST(ServeTest, TheSettingsPageIsTrue) {
  std::ifstream file(BATON_SOURCE_DIR "/docs/config.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});

  EXPECT_EQ(RunBaton("config-docs").output, page) << "run scripts/make_docs.sh";
}

TEST(ServeTest, StopsInOrderAndLetsAStreamFinish) {
  const auto cluster = LocalCluster::Start(TinyModelPath());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  HttpClient client((*cluster)->http_port(), absl::Seconds(60));
  const json body = {{"prompt", std::vector<int>(50, 300)},
                     {"max_tokens", 600},
                     {"ignore_eos", true},
                     {"stream", true}};
  client.Send("POST", "/v1/completions", body.dump());
  ASSERT_TRUE(client.ReadUntil("\n\n").ok());
  int code = -1;
  std::thread stopper([&] { code = (*cluster)->Stop(); });

  const auto rest = client.ReadUntil("[DONE]");
  stopper.join();

  EXPECT_TRUE(rest.ok()) << "the stream was cut off by the drain";
  EXPECT_EQ(code, 0);
}

// A process that reports readiness, started without `baton serve`.
class Process {
 public:
  explicit Process(std::vector<std::string> args) {
    const char* const binary = std::getenv("BATON_BINARY");
    auto spawned = cli::ChildProcess::Spawn(binary == nullptr ? BATON_BINARY : binary, args, {});
    EXPECT_TRUE(spawned.ok()) << spawned.status();
    child_ = std::make_unique<cli::ChildProcess>(*std::move(spawned));
    EXPECT_TRUE(WaitFor([&] { return child_->ReadReady(values_); }, absl::Seconds(60)));
  }
  ~Process() {
    child_->Signal(SIGTERM);
    int status = 0;
    if (!WaitFor([&] { return waitpid(child_->pid(), &status, WNOHANG) != 0; })) {
      child_->Signal(SIGKILL);
      waitpid(child_->pid(), &status, 0);
    }
  }
  std::string value(const std::string& key) const { return values_.at(key); }

 private:
  std::unique_ptr<cli::ChildProcess> child_;
  std::map<std::string, std::string> values_;
};

TEST(ServeTest, SeveralRoutersShareTheWorkers) {
  const std::vector<std::string> router_args = {"router",           "--model=" + TinyModelPath(),
                                                "--host=127.0.0.1", "--port=0",
                                                "--grpc-port=0",    "--session-port=0"};
  const Process first(router_args), second(router_args);
  const std::string routers = absl::StrCat("--routers=127.0.0.1:", first.value("session_port"),
                                           ",127.0.0.1:", second.value("session_port"));
  const Process prefill({"prefill", "--model=" + TinyModelPath(), "--host=127.0.0.1", routers});
  const Process decode({"decode", "--model=" + TinyModelPath(), "--host=127.0.0.1", routers});

  const json body = {{"prompt", "A mountain is"}, {"max_tokens", 8}, {"temperature", 0}};
  std::vector<std::string> texts;
  for (const Process* router : {&first, &second}) {
    const int port = std::atoi(router->value("http_port").c_str());
    ASSERT_TRUE(WaitFor([&] {
      HttpClient client(port);
      const auto ready = client.Do("GET", "/ready");
      return ready.ok() && ready->status == 200;
    }));
    HttpClient client(port);
    const auto answer = client.Do("POST", "/v1/completions", body.dump());
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_EQ(answer->status, 200) << answer->body;
    texts.push_back(json::parse(answer->body)["choices"][0]["text"]);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(ServeTest, ARouterWithoutWorkersSaysComeBackLater) {
  const Process router({"router", "--model=" + TinyModelPath(), "--host=127.0.0.1", "--port=0",
                        "--grpc-port=0", "--session-port=0"});
  HttpClient client(std::atoi(router.value("http_port").c_str()));

  const auto answer = client.Do("POST", "/v1/completions", R"({"prompt": "Hi", "max_tokens": 2})");

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 503) << answer->body;
  EXPECT_TRUE(answer->headers.contains("retry-after"));
}

TEST(ServeTest, WantsTheApiKeyWhereThereIsOne) {
  const auto cluster = LocalCluster::Start(TinyModelPath(), {}, {{"BATON_API_KEY", "sesame"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string body = R"({"prompt": "Hi", "max_tokens": 2})";
  HttpClient client((*cluster)->http_port());

  EXPECT_EQ(client.Do("POST", "/v1/completions", body)->status, 401);
  EXPECT_EQ(client.Do("POST", "/v1/completions", body, "Authorization: Bearer no\r\n")->status,
            401);
  EXPECT_EQ(client.Do("POST", "/v1/completions", body, "Authorization: Bearer sesame\r\n")->status,
            200);
  EXPECT_EQ(client.Do("GET", "/health")->status, 200);
}

}  // namespace
}  // namespace baton::testing
