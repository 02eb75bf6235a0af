// Sender and receiver in processes of their own, killed and stopped in the middle.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/line_process.h"
#include "tests/support/transfer_peer.h"
#include "tests/support/wait_for.h"

namespace baton::kvtransfer {
namespace {

constexpr int kUnavailable = static_cast<int>(absl::StatusCode::kUnavailable);
constexpr int kDeadlineExceeded = static_cast<int>(absl::StatusCode::kDeadlineExceeded);
constexpr int kFailedPrecondition = static_cast<int>(absl::StatusCode::kFailedPrecondition);
const char kShortLease[] = "2000";

int NumRings(pid_t pid) {
  int count = 0;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    count += target.find("baton-kv-ring") != std::string::npos ? 1 : 0;
  }
  return count;
}

struct Setting {
  const char* name;
  const char* transport;
  const char* cut;  // of the sender; the receiver has blocks of 16 tokens and one rank
};

class TransferProcessTest : public ::testing::TestWithParam<Setting> {
 protected:
  std::unique_ptr<LineProcess> StartSender() {
    auto process = std::make_unique<LineProcess>(std::vector<std::string>{
        BATON_TRANSFER_PEER, "send", GetParam().transport, GetParam().cut});
    EXPECT_TRUE(process->ReadLineWith("ready").has_value()) << "the sender does not start";
    return process;
  }
  std::unique_ptr<LineProcess> StartReceiver(int incarnation, const std::string& lease_ms = "10000",
                                             const std::string& address = "127.0.0.1:0") {
    auto process = std::make_unique<LineProcess>(
        std::vector<std::string>{BATON_TRANSFER_PEER, "receive", std::to_string(incarnation),
                                 address, lease_ms, GetParam().cut});
    const auto line = process->ReadLineWith("port ");
    EXPECT_TRUE(line.has_value()) << "the receiver does not start";
    port_ = line.value_or("port 0").substr(5);
    return process;
  }
  static std::string Reserve(LineProcess& receiver, int num_blocks) {
    receiver.WriteLine(absl::StrCat("reserve ", num_blocks));
    return receiver.ReadLineWith("ticket ").value_or("");
  }
  static void SendLayers(LineProcess& sender, const std::string& ticket, int layers) {
    sender.WriteLine(absl::StrCat(ticket, " ", layers));
  }
  // Runs a whole transfer and expects it to succeed.
  static void ExpectTransfer(LineProcess& sender, LineProcess& receiver) {
    const std::string ticket = Reserve(receiver, kPeerBlocks);
    SendLayers(sender, ticket, kPeerLayers);
    const auto done = receiver.ReadLineWith("complete ");
    ASSERT_TRUE(done.has_value());
    EXPECT_NE(done->find("equal"), std::string::npos) << *done;
    EXPECT_NE(sender.ReadLineWith("done ").value_or("").find(" 0 "), std::string::npos);
  }

  std::string port_;
};

TEST_P(TransferProcessTest, DeliversBetweenProcesses) {
  auto receiver = StartReceiver(1);
  auto sender = StartSender();

  ExpectTransfer(*sender, *receiver);
  ExpectTransfer(*sender, *receiver);

  EXPECT_EQ(NumRings(receiver->pid()), std::string(GetParam().transport) == "shm" ? 1 : 0);
}

TEST_P(TransferProcessTest, AKilledSenderFailsItsTransferAtOnceAndLeavesNothing) {
  auto receiver = StartReceiver(1);
  for (int round = 0; round < 3; ++round) {
    auto sender = StartSender();
    ExpectTransfer(*sender, *receiver);
    const std::string ticket = Reserve(*receiver, kPeerBlocks);
    SendLayers(*sender, ticket, kPeerLayers - 1);
    ASSERT_TRUE(sender->ReadLineWith("put ").has_value());  // its frames are under way

    sender->Kill();

    const auto failed = receiver->ReadLineWith("failed ", absl::Seconds(5));
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(failed->substr(failed->rfind(' ') + 1), std::to_string(kUnavailable)) << *failed;
    EXPECT_TRUE(baton::testing::WaitFor([&] { return NumRings(receiver->pid()) == 0; }));
  }
  auto sender = StartSender();
  ExpectTransfer(*sender, *receiver);
}

TEST_P(TransferProcessTest, AKilledReceiverFailsItsTransferAndItsSuccessorRefusesTheOldTicket) {
  auto receiver = StartReceiver(1);
  auto sender = StartSender();
  ExpectTransfer(*sender, *receiver);
  const std::string old_ticket = Reserve(*receiver, kPeerBlocks);
  SendLayers(*sender, old_ticket, kPeerLayers - 1);
  ASSERT_TRUE(sender->ReadLineWith("put ").has_value());

  receiver->Kill();

  const auto failed = sender->ReadLineWith("done ", absl::Seconds(5));
  ASSERT_TRUE(failed.has_value());
  EXPECT_NE(failed->find(absl::StrCat(" ", kUnavailable, " ")), std::string::npos) << *failed;
  receiver = StartReceiver(2, "10000", absl::StrCat("127.0.0.1:", port_));
  SendLayers(*sender, old_ticket, kPeerLayers);
  // Soon: losing the only connection must not keep the sender from dialling again.
  const auto refused = sender->ReadLineWith("done ", absl::Seconds(5));
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->find(absl::StrCat(" ", kFailedPrecondition, " ")), std::string::npos)
      << *refused;
  ExpectTransfer(*sender, *receiver);
}

TEST_P(TransferProcessTest, AStoppedSenderLosesItsLeaseAndCannotTouchTheBlocksAgain) {
  auto receiver = StartReceiver(1, kShortLease);
  auto stopped = StartSender();
  auto other = StartSender();
  ExpectTransfer(*stopped, *receiver);
  SendLayers(*stopped, Reserve(*receiver, kPeerBlocks), kPeerLayers - 1);
  ASSERT_TRUE(stopped->ReadLineWith("put ").has_value());

  stopped->Signal(SIGSTOP);

  const auto failed = receiver->ReadLineWith("failed ", absl::Seconds(10));
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->substr(failed->rfind(' ') + 1), std::to_string(kDeadlineExceeded));
  ExpectTransfer(*other, *receiver);  // into the same blocks
  stopped->Signal(SIGCONT);
  const auto told = stopped->ReadLineWith("done ");
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->find(" 0 "), std::string::npos) << *told;
  ExpectTransfer(*stopped, *receiver);
}

TEST_P(TransferProcessTest, AStoppedReceiverFailsTheTransferAndTheSenderGetsItsBlocksBack) {
  auto receiver = StartReceiver(1, kShortLease);
  auto sender = StartSender();
  ExpectTransfer(*sender, *receiver);
  const std::string first = Reserve(*receiver, kPeerBlocks);
  const std::string second = Reserve(*receiver, kPeerBlocks);

  receiver->Signal(SIGSTOP);
  // More than the sockets or the ring can hold, so that bytes wait in the transport.
  SendLayers(*sender, first, kPeerLayers);
  SendLayers(*sender, second, kPeerLayers - 1);

  for (int i = 0; i < 2; ++i) {
    const auto failed = sender->ReadLineWith("done ", absl::Seconds(10));
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(failed->find(" 0 "), std::string::npos) << *failed;
  }
  receiver->Signal(SIGCONT);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(receiver->ReadLineWith("failed ").has_value());
  ExpectTransfer(*sender, *receiver);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransferProcessTest,
                         ::testing::Values(Setting{"grpc", "grpc", "16,1"},
                                           Setting{"shm", "shm", "16,1"},
                                           Setting{"grpc_unequal", "grpc", "32,2"},
                                           Setting{"shm_unequal", "shm", "64,3"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace baton::kvtransfer
