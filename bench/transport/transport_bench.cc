// What moving KV blocks costs: Baton's transports beside plain TCP and memcpy, in one run.
//
//   transport_bench [--gigabytes 4] [--block-kib 12] [--prompt-tokens 512] [--layers 30]
//
// Every row moves the same bytes between two processes with pools of their own (memcpy: within
// one): whole transfers of the given prompt, two under way at a time. GB/s is by the sender's
// clock; CPU is of both processes.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "bench/transport/process_pair.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "kvtransfer/transfer.h"

namespace baton::bench {
namespace {

using kvtransfer::TransferReceiver;
using kvtransfer::TransferSender;

constexpr int kTransfersUnderWay = 2;
constexpr int kBlockTokens = 16;

struct Setting {
  double gigabytes = 4;
  int block_kib = 12;
  int prompt_tokens = 512;
  int layers = 30;
  int blocks() const { return (prompt_tokens + kBlockTokens - 1) / kBlockTokens; }
  std::size_t block_bytes() const { return static_cast<std::size_t>(block_kib) * 1024; }
  std::size_t transfer_bytes() const { return block_bytes() * blocks() * layers; }
  int transfers() const {
    return std::max(2, static_cast<int>(gigabytes * 1e9 / static_cast<double>(transfer_bytes())));
  }
  ModelFingerprint fingerprint() const {
    return {.model = "bench",
            .compute = "fast",
            .kv_dtype = "f16",
            .num_layers = layers,
            .num_kv_heads = 1,
            .head_dim = static_cast<int>(block_bytes() / (2 * 2 * kBlockTokens))};
  }
};

// Room for as many prompts as are under way, several times over so that no cache holds it.
class Pool {
 public:
  explicit Pool(const Setting& setting) : setting_(setting) {
    const std::size_t wanted = std::size_t{256} << 20;
    num_prompts_ =
        std::max<int>(kTransfersUnderWay + 1, static_cast<int>(wanted / setting.transfer_bytes()));
    layers_.assign(setting.layers,
                   std::vector<std::byte>(setting.block_bytes() * num_blocks(), std::byte{1}));
  }
  int num_blocks() const { return num_prompts_ * setting_.blocks(); }
  kvtransfer::KvMemory memory() {
    kvtransfer::KvMemory::Rank rank{.layers = {}, .block_bytes = setting_.block_bytes()};
    for (auto& layer : layers_) rank.layers.push_back(layer.data());
    return {.ranks = {std::move(rank)}, .block_size = kBlockTokens, .num_blocks = num_blocks()};
  }
  std::vector<std::int32_t> BlocksOf(int transfer) const {
    std::vector<std::int32_t> blocks(setting_.blocks());
    std::iota(blocks.begin(), blocks.end(), transfer % num_prompts_ * setting_.blocks());
    return blocks;
  }
  std::byte* at(int layer, int block) {
    return layers_[layer].data() + block * setting_.block_bytes();
  }

 private:
  const Setting& setting_;
  int num_prompts_ = 0;
  std::vector<std::vector<std::byte>> layers_;
};

// Counts up and lets a thread wait for a number.
class Tally {
 public:
  void Add() {
    absl::MutexLock lock(&mutex_);
    ++count_;
  }
  void AwaitAtLeast(int count) {
    absl::MutexLock lock(&mutex_);
    const auto reached = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ >= count; };
    mutex_.Await(absl::Condition(&reached));
  }

 private:
  absl::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

void ReceiveTransfers(const Setting& setting, PairEnd& end) {
  RealClock clock;
  Pool pool(setting);
  Tally completed;
  TransferReceiver::Options options;
  options.worker_id = "d";
  options.fingerprint = setting.fingerprint();
  options.memory = pool.memory();
  options.listen_address = "127.0.0.1:0";
  TransferReceiver::Callbacks callbacks{
      .on_complete = [&](std::uint64_t, const kvtransfer::HandoffRecord&,
                         const kvtransfer::ReceiveReport&) { completed.Add(); },
      .on_failed =
          [](std::uint64_t, const absl::Status& status) {
            std::fprintf(stderr, "transfer failed: %s\n", status.ToString().c_str());
            _exit(1);
          }};
  auto receiver = TransferReceiver::Start(options, callbacks, clock);
  BATON_CHECK(receiver.ok(), "the receiver cannot listen");
  end.WriteLine(absl::StrCat((*receiver)->port()));
  end.ReadLine();
  end.StartClock();
  for (int i = 0; i < setting.transfers(); ++i) {
    completed.AwaitAtLeast(i + 1 - kTransfersUnderWay);
    const TransferTicket ticket = (*receiver)->Reserve(pool.BlocksOf(i), setting.prompt_tokens);
    end.WriteLine(absl::StrCat(ticket.transfer_id));
  }
  completed.AwaitAtLeast(setting.transfers());
  end.StopClock();
  end.ReadLine();  // the sender has gone
}

void SendTransfers(const Setting& setting, const std::string& transport, PairEnd& end) {
  RealClock clock;
  Pool pool(setting);
  Tally acknowledged;
  TransferSender::Options options;
  options.worker_id = "p";
  options.fingerprint = setting.fingerprint();
  options.memory = pool.memory();
  options.transport = transport;
  auto sender = TransferSender::Create(options, clock);
  TransferTicket ticket;
  ticket.worker_id = "d";
  ticket.lease = absl::Seconds(10);
  ticket.address = absl::StrCat("127.0.0.1:", end.ReadLine());
  ticket.num_tokens = setting.prompt_tokens;
  ticket.fingerprint = setting.fingerprint();
  ticket.cut = {.block_size = kBlockTokens};
  end.WriteLine("go");
  end.StartClock();
  for (int i = 0; i < setting.transfers(); ++i) {
    ticket.transfer_id = std::strtoull(end.ReadLine().c_str(), nullptr, 10);
    ticket.blocks = pool.BlocksOf(i);
    const std::uint64_t key = sender->Begin(
        ticket, pool.BlocksOf(i),
        [&](std::uint64_t, const absl::Status& status, const kvtransfer::SendReport&) {
          BATON_CHECK(status.ok(), "a transfer of the benchmark failed");
          acknowledged.Add();
        });
    for (int layer = 0; layer < setting.layers; ++layer) {
      sender->PutLayer(key, layer, 0, setting.blocks());
    }
    sender->Complete(key, {});
  }
  acknowledged.AwaitAtLeast(setting.transfers());
  end.StopClock();
}

void SetSocket(int fd) {
  const int bytes = 4 << 20;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Plain TCP: the blocks of a layer one after the other, received where they belong.
void ReceiveTcp(const Setting& setting, PairEnd& end) {
  Pool pool(setting);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  SetSocket(listener);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  BATON_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                  listen(listener, 1) == 0 &&
                  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0,
              "the benchmark cannot listen");
  end.WriteLine(absl::StrCat(ntohs(address.sin_port)));
  const int peer = accept(listener, nullptr, nullptr);
  SetSocket(peer);
  end.StartClock();
  for (int i = 0; i < setting.transfers(); ++i) {
    for (int layer = 0; layer < setting.layers; ++layer) {
      for (const int block : pool.BlocksOf(i)) {
        BATON_CHECK(recv(peer, pool.at(layer, block), setting.block_bytes(), MSG_WAITALL) ==
                        static_cast<ssize_t>(setting.block_bytes()),
                    "recv");
      }
    }
    const char ack = 1;
    BATON_CHECK(send(peer, &ack, 1, 0) == 1, "send");
  }
  end.StopClock();
}

void SendAll(int fd, std::vector<iovec> pieces) {
  std::size_t first = 0;
  while (first < pieces.size()) {
    const auto count = std::min<std::size_t>(pieces.size() - first, 64);
    ssize_t sent = writev(fd, &pieces[first], static_cast<int>(count));
    BATON_CHECK(sent > 0, "writev");
    while (first < pieces.size() && sent >= static_cast<ssize_t>(pieces[first].iov_len)) {
      sent -= static_cast<ssize_t>(pieces[first++].iov_len);
    }
    if (sent == 0) continue;
    pieces[first].iov_base = static_cast<char*>(pieces[first].iov_base) + sent;
    pieces[first].iov_len -= sent;
  }
}

void SendTcp(const Setting& setting, PairEnd& end) {
  Pool pool(setting);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  SetSocket(fd);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(end.ReadLine().c_str())));
  BATON_CHECK(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "connect");
  end.StartClock();
  for (int i = 0; i < setting.transfers(); ++i) {
    for (int layer = 0; layer < setting.layers; ++layer) {
      std::vector<iovec> pieces;
      for (const int block : pool.BlocksOf(i)) {
        pieces.push_back({pool.at(layer, block), setting.block_bytes()});
      }
      SendAll(fd, std::move(pieces));
    }
    char ack = 0;
    if (i >= kTransfersUnderWay - 1) BATON_CHECK(recv(fd, &ack, 1, 0) == 1, "recv");
  }
  char ack = 0;
  BATON_CHECK(recv(fd, &ack, 1, 0) == 1, "recv");
  end.StopClock();
}

// One thread, one process: the floor. The other end only reports nothing.
void CopyAll(const Setting& setting, PairEnd& end) {
  Pool source(setting);
  Pool destination(setting);
  end.StartClock();
  for (int i = 0; i < setting.transfers(); ++i) {
    for (int layer = 0; layer < setting.layers; ++layer) {
      for (const int block : source.BlocksOf(i)) {
        std::memcpy(destination.at(layer, block), source.at(layer, block), setting.block_bytes());
      }
    }
  }
  end.StopClock();
}
void DoNothing(PairEnd& end) {
  end.StartClock();
  end.StopClock();
}

void Report(const char* name, const Setting& setting, const PairCost& cost) {
  if (!cost.ok) {
    std::printf("%-26s failed\n", name);
    return;
  }
  const double gigabytes =
      1e-9 * static_cast<double>(setting.transfer_bytes()) * setting.transfers();
  std::printf("%-26s %8.2f %12.3f\n", name, gigabytes / cost.seconds, cost.cpu_seconds / gigabytes);
  std::fflush(stdout);
}

bool ParseFlags(int argc, char** argv, Setting* setting) {
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const double value = i + 1 < argc ? std::atof(argv[i + 1]) : 0;
    if (value <= 0 || value > 131072) return false;
    if (flag == "--gigabytes") {
      setting->gigabytes = value;
    } else if (flag == "--block-kib") {
      setting->block_kib = static_cast<int>(value);
    } else if (flag == "--prompt-tokens") {
      setting->prompt_tokens = static_cast<int>(value);
    } else if (flag == "--layers") {
      setting->layers = static_cast<int>(value);
    } else {
      return false;
    }
  }
  return setting->block_kib >= 1 && setting->prompt_tokens >= 1 && setting->layers >= 1;
}

int Main(int argc, char** argv) {
  Setting setting;
  if (!ParseFlags(argc, argv, &setting)) {
    std::fprintf(stderr,
                 "usage: transport_bench [--gigabytes N] [--block-kib N] [--prompt-tokens N] "
                 "[--layers N]\n");
    return 2;
  }
  log::Configure({.level = log::Level::kWarn, .json = false, .process = "transport_bench"});
  std::printf("%d transfers of %.1f MB: %d layers, %d blocks of %d KiB\n", setting.transfers(),
              1e-6 * static_cast<double>(setting.transfer_bytes()), setting.layers,
              setting.blocks(), setting.block_kib);
  std::printf("%-26s %8s %12s\n", "transport", "GB/s", "CPU-s/GB");
  Report("memcpy, one process", setting,
         RunPair([&](PairEnd& end) { CopyAll(setting, end); }, &DoNothing));
  const auto receive = [&](PairEnd& end) { ReceiveTransfers(setting, end); };
  for (const char* transport : {"shm", "grpc"}) {
    Report(transport, setting,
           RunPair([&](PairEnd& end) { SendTransfers(setting, transport, end); }, receive));
  }
  Report("plain TCP, 4 MiB buffers", setting,
         RunPair([&](PairEnd& end) { SendTcp(setting, end); },
                 [&](PairEnd& end) { ReceiveTcp(setting, end); }));
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
