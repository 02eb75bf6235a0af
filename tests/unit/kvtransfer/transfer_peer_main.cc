// One end of a transfer in a process of its own, for tests that kill and stop it. Talks in lines
// over stdin and stdout.
//
//   transfer_peer send TRANSPORT CUT
//       Prints "ready", reads "ticket ID INCARNATION ADDRESS LEASE_MS NUM_BLOCKS LAYERS", puts that
//       many layers (if all, completes too), prints "put ID" once the wire has taken bytes of it,
//       then "done ID CODE TRANSPORT" for each outcome.
//   transfer_peer receive INCARNATION ADDRESS LEASE_MS CUT
//       Prints "port PORT", then a ticket as above (without LAYERS) for each "reserve NUM_BLOCKS",
//       and "complete ID equal", "complete ID different" or "failed ID CODE" for each outcome.
// CUT is the sender's, as "BLOCK_SIZE,RANKS"; the receiver's is kTestCut.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <numeric>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "kvtransfer/metrics.h"
#include "kvtransfer/transfer.h"
#include "tests/support/transfer_peer.h"
#include "tests/support/transfer_rig.h"
#include "tests/support/wait_for.h"

namespace baton::kvtransfer {
namespace {

void Say(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  std::cout << line << std::endl;
}

KvCut ParseCut(const std::string& text) {
  KvCut cut;
  char comma = 0;
  std::istringstream(text) >> cut.block_size >> comma >> cut.tensor_parallel_size;
  return cut;
}

std::vector<std::int32_t> FirstBlocks(int count) {
  std::vector<std::int32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

int Send(const std::string& transport, const KvCut& cut) {
  RealClock clock;
  TestPool pool(TestFingerprint(kPeerLayers), cut, cut.BlocksFor(kPeerTokens));
  pool.Fill(kPeerSeed);
  TransferSender::Options options;
  options.worker_id = "p-0";
  options.incarnation = 1;
  options.fingerprint = TestFingerprint(kPeerLayers);
  options.memory = pool.memory();
  options.transport = transport;
  metrics::Registry registry;
  TransferMetrics metrics(registry, "send");
  options.metrics = &metrics;
  auto sender = TransferSender::Create(std::move(options), clock);
  Say("ready");
  std::string line;
  while (std::getline(std::cin, line)) {
    PeerTicket words;
    if (!ParsePeerTicket(line, &words)) return 2;
    const std::uint64_t id = words.ticket.transfer_id;
    const double bytes_before = metrics.bytes.value();
    const int num_blocks = cut.BlocksFor(words.ticket.num_tokens);
    const std::uint64_t key = sender->Begin(
        words.ticket, FirstBlocks(num_blocks),
        [id](std::uint64_t, const absl::Status& status, const SendReport& report) {
          Say(absl::StrCat("done ", id, " ", status.raw_code(), " ", report.transport));
        });
    for (int layer = 0; layer < words.layers; ++layer) sender->PutLayer(key, layer, 0, num_blocks);
    if (words.layers == kPeerLayers) sender->Complete(key, {});
    baton::testing::WaitFor([&] { return metrics.bytes.value() > bytes_before; }, absl::Seconds(2));
    Say(absl::StrCat("put ", id));
  }
  return 0;
}

int Receive(std::uint64_t incarnation, const std::string& address, absl::Duration lease,
            const KvCut& cut) {
  RealClock clock;
  TestPool expected(TestFingerprint(kPeerLayers), cut, cut.BlocksFor(kPeerTokens));
  expected.Fill(kPeerSeed);
  TestPool pool(TestFingerprint(kPeerLayers), kTestCut, kPeerBlocks);
  TransferReceiver::Options options;
  options.worker_id = "d-0";
  options.incarnation = incarnation;
  options.fingerprint = TestFingerprint(kPeerLayers);
  options.memory = pool.memory();
  options.listen_address = address;
  options.lease = lease;
  options.max_age = 3 * lease;  // a begin that was lost with its link ends only by this
  TransferReceiver::Callbacks callbacks{
      .on_complete =
          [&](std::uint64_t id, const HandoffRecord&, const ReceiveReport& report) {
            bool equal = true;
            const auto num_tokens = static_cast<int>(
                report.bytes / static_cast<int>(kPeerBlockBytes) / kPeerLayers * 16);
            for (int layer = 0; layer < kPeerLayers; ++layer) {
              equal = equal && expected.SameTokens(layer, 0, num_tokens,
                                                   FirstBlocks(cut.BlocksFor(num_tokens)), pool,
                                                   FirstBlocks(kTestCut.BlocksFor(num_tokens)));
            }
            Say(absl::StrCat("complete ", id, " ", equal ? "equal" : "different"));
          },
      .on_failed =
          [](std::uint64_t id, const absl::Status& status) {
            Say(absl::StrCat("failed ", id, " ", status.raw_code()));
          }};
  auto receiver = TransferReceiver::Start(std::move(options), std::move(callbacks), clock);
  if (!receiver.ok()) {
    std::cerr << receiver.status() << std::endl;
    return 3;
  }
  Say(absl::StrCat("port ", (*receiver)->port()));
  std::string word;
  int num_blocks = 0;
  while (std::cin >> word >> num_blocks) {
    const TransferTicket ticket = (*receiver)->Reserve(FirstBlocks(num_blocks), num_blocks * 16);
    Say(PrintPeerTicket(ticket));
  }
  return 0;
}

int Main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "send" && argc == 4) return Send(argv[2], ParseCut(argv[3]));
  if (role == "receive" && argc == 6) {
    return Receive(std::strtoull(argv[2], nullptr, 10), argv[3],
                   absl::Milliseconds(std::atoi(argv[4])), ParseCut(argv[5]));
  }
  std::cerr
      << "usage: transfer_peer send TRANSPORT CUT | receive INCARNATION ADDRESS LEASE_MS CUT\n";
  return 1;
}

}  // namespace
}  // namespace baton::kvtransfer

int main(int argc, char** argv) { return baton::kvtransfer::Main(argc, argv); }
